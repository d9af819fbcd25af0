"""What every kernel computes, in NumPy, slow and obvious.

Real-valued functions compute in the type of the arrays they are given: float64 is the truth that a kernel is compared
with, float32 the plain implementation whose error is the measure of the kernel's. Whole numbers are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

WEIGHTS, ACTION, SHUFFLE, EPISODE = 1, 2, 3, 4  # what a draw is for: the third word of the trainer's counters
WORD = 0xFFFFFFFF


def philox(counter: Array, key: int) -> Array:
    """Philox4x32-10 (Salmon et al., SC 2011): counters (..., 4) to words (..., 4), both uint64 holding 32 bits."""
    c0, c1, c2, c3 = (counter[..., k].astype(np.uint64) for k in range(4))
    k0, k1 = key & WORD, key >> 32 & WORD
    for _ in range(10):
        product0, product1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c2 = (product1 >> 32) ^ c1 ^ np.uint64(k0), (product0 >> 32) ^ c3 ^ np.uint64(k1)
        c1, c3 = product1 & WORD, product0 & WORD
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return np.stack([c0, c1, c2, c3], axis=-1)


def counters(index: Array | range, *rest: int) -> Array:
    """Counters (index, *rest) for each index: (len(index), 4)."""
    return np.array([(i, *rest) for i in index], dtype=np.uint64).reshape(-1, 4)


def uniform(word: Array) -> Array:
    """[0, 1) from the word's upper 24 bits."""
    return (word >> 8).astype(np.float64) / 2**24


def normals(word: Array, dtype: Any) -> Array:
    """Standard normals (..., 4) from words (..., 4): Box and Muller on the words' pairs."""
    a, b = word[..., 0::2], word[..., 1::2]
    # The kernel adds 1/2 in float32: what that rounds to is part of the definition.
    u = ((a >> 8).astype(np.float32) + np.float32(0.5)).astype(dtype) / dtype(2**24)
    radius, angle = np.sqrt(-2 * np.log(u)), dtype(2 * np.pi) * uniform(b).astype(dtype)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1).reshape(word.shape)


def episode_seeds(environment: Array, episode: Array, run_seed: int) -> Array:
    """Seeds of training episodes: 62 bits of Philox, the two top bits 0."""
    episode = episode.astype(np.uint64)
    purpose = np.full_like(episode, EPISODE)
    words = philox(np.stack([environment.astype(np.uint64), episode & WORD, purpose, episode >> 32], -1), run_seed)
    return ((words[..., 0] << 32) | words[..., 1]) & ((1 << 62) - 1)


def categorical(logits: Array) -> tuple[Array, Array]:
    """Log-probabilities (N, A) and entropy (N)."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return log_probs, -(np.exp(log_probs) * log_probs).sum(axis=-1)


def gaussian(parameters: Array, action: Array) -> tuple[Array, Array]:
    """Log-probability (N) of raw actions (N, A) and entropy (N), from means and log standard deviations (N, 2A)."""
    mean, log_std = np.split(parameters, 2, axis=-1)
    log_sqrt_2pi = mean.dtype.type(np.log(2 * np.pi) / 2)
    z = (action - mean) / np.exp(log_std)
    return (-z * z / 2 - log_std - log_sqrt_2pi).sum(axis=-1), (0.5 + log_sqrt_2pi + log_std).sum(axis=-1)


def sample_categorical(logits: Array, step: int, run_seed: int) -> tuple[Array, Array]:
    """The actions (N) drawn by inversion, and how far the draw was from the nearest bound between two actions (N)."""
    log_probs, _ = categorical(logits.astype(np.float64))
    bounds = np.cumsum(np.exp(log_probs), axis=-1)[:, :-1]
    u = uniform(philox(counters(range(len(logits)), step, ACTION, 0), run_seed)[:, :1])
    margin = np.abs(u - bounds).min(axis=-1, initial=np.inf)
    return (u >= bounds).sum(axis=-1), margin


def sample_gaussian(parameters: Array, step: int, run_seed: int) -> Array:
    """Raw actions (N, A) from means and log standard deviations (N, 2A)."""
    mean, log_std = np.split(parameters, 2, axis=-1)
    (rows, dimensions), dtype = mean.shape, parameters.dtype.type
    blocks = -(-dimensions // 4)  # of four normals, for each row
    words = philox(counters(range(rows * blocks), step, ACTION, 0), run_seed)
    z = normals(words, dtype).reshape(rows, blocks * 4)[:, :dimensions]
    return mean + np.exp(log_std) * z


def gae(
    rewards: Array,
    values: Array,
    final_values: Array,
    terminated: Array,
    truncated: Array,
    gamma: float,
    gae_lambda: float,
) -> tuple[Array, Array]:
    """Advantages and returns (T, N) (Schulman et al., arXiv:1506.02438, eq. 16; Pardo et al., arXiv:1712.00378)."""
    T, N = rewards.shape
    advantages = np.zeros_like(rewards)
    for n in range(N):
        for t in reversed(range(T)):
            if terminated[t, n]:
                bootstrap, following = rewards.dtype.type(0), rewards.dtype.type(0)
            elif truncated[t, n]:
                bootstrap, following = final_values[t, n], rewards.dtype.type(0)
            else:
                bootstrap = values[t + 1, n]
                following = advantages[t + 1, n] if t + 1 < T else rewards.dtype.type(0)
            delta = rewards[t, n] + gamma * bootstrap - values[t, n]
            advantages[t, n] = delta + gamma * gae_lambda * following
    return advantages, advantages + values[:-1]


def advantage_shift(advantage: Array, index: Array) -> tuple[Array]:
    """(mean, 1 / (standard deviation + 1e-8)) of a minibatch; (0, 1) of a single sample."""
    a = advantage[index]
    if len(a) == 1:
        return (np.array([0, 1], a.dtype),)
    return (np.array([a.mean(), 1 / (a.std(ddof=1) + a.dtype.type(1e-8))], a.dtype),)


def ppo_loss(
    parameters: Array,
    value: Array,
    index: Array,
    action: Array,
    old_log_prob: Array,
    advantage: Array,
    returns: Array,
    shift: Array,
    clip_coef: float,
    ent_coef: float,
    vf_coef: float,
) -> tuple[Array, Array, Array]:
    """The loss' gradient by parameters and value, and the five metrics (Schulman et al., arXiv:1707.06347, eq. 7)."""
    action, old_log_prob, returns = action[index], old_log_prob[index], returns[index]
    a = (advantage[index] - shift[0]) * shift[1]
    samples = parameters.dtype.type(len(value))
    if action.ndim == 1:
        log_probs, entropy = categorical(parameters)
        probs, taken = np.exp(log_probs), np.arange(parameters.shape[1]) == action[:, None]
        log_prob = log_probs[taken]
        log_prob_gradient = taken.astype(parameters.dtype) - probs
        entropy_gradient = -probs * (log_probs + entropy[:, None])
    else:
        log_prob, entropy = gaussian(parameters, action)
        mean, log_std = np.split(parameters, 2, axis=-1)
        z = (action - mean) / np.exp(log_std)
        log_prob_gradient = np.concatenate([z / np.exp(log_std), z * z - 1], axis=-1)
        entropy_gradient = np.concatenate([np.zeros_like(mean), np.ones_like(mean)], axis=-1)
    log_ratio = log_prob - old_log_prob
    ratio = np.exp(log_ratio)
    surrogate, clipped = ratio * a, np.clip(ratio, 1 - clip_coef, 1 + clip_coef) * a
    by_log_prob = np.where(clipped < surrogate, 0, -surrogate) / samples
    grad_parameters = by_log_prob[:, None] * log_prob_gradient - ent_coef * entropy_gradient / samples
    grad_value = vf_coef * (value - returns) / samples
    metrics = [
        -np.minimum(surrogate, clipped).mean(),
        ((value - returns) ** 2).mean() / 2,
        entropy.mean(),
        ((ratio - 1) - log_ratio).mean(),
        (np.abs(ratio - 1) > clip_coef).astype(parameters.dtype).mean(),
    ]
    return grad_parameters, grad_value, np.array(metrics, parameters.dtype)


def global_norm(gradient: Array, max_norm: float) -> tuple[Array, Array]:
    """The norm before clipping, and the factor that clips (Pascanu et al., arXiv:1211.5063)."""
    norm = np.sqrt((gradient * gradient).sum(keepdims=True))
    return norm, np.minimum(1, max_norm / (norm + gradient.dtype.type(1e-6)))


def adam(
    parameters: Array,
    gradient: Array,
    scale: Array,
    first_moment: Array,
    second_moment: Array,
    schedule: Array,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> tuple[Array, Array, Array]:
    """Parameters and moments after a step (Kingma and Ba, arXiv:1412.6980); schedule: see the kernel."""
    g = gradient * scale
    m = beta1 * first_moment + (1 - beta1) * g
    v = beta2 * second_moment + (1 - beta2) * g * g
    learning_rate, correction1, correction2 = schedule
    return parameters - learning_rate * (m / correction1) / (np.sqrt(v / correction2) + epsilon), m, v


def orthogonal(inputs: int, outputs: int, gain: float, layer: int, run_seed: int, dtype: Any = np.float64) -> Array:
    """Gram-Schmidt on Gaussian columns (rows, where they are fewer) is QR with a positive diagonal of R."""
    words = philox(counters(range(-(-inputs * outputs // 4)), layer, WEIGHTS, 0), run_seed)
    gaussian_matrix = normals(words, dtype).reshape(-1)[: inputs * outputs].reshape(inputs, outputs)
    q, r = np.linalg.qr(gaussian_matrix if inputs >= outputs else gaussian_matrix.T)
    q = q * np.where(np.diag(r) < 0, -1, 1).astype(dtype)
    return dtype(gain) * (q if inputs >= outputs else q.T)


def shuffle(n: int, update: int, epoch: int, run_seed: int) -> list[int]:
    """A Feistel network over the smallest power of two that holds n, walked until it lands below n."""
    bits = max(2, (n - 1).bit_length())
    rounds = min(32, 8 + 48 // bits)
    keys = philox(counters(range(epoch * 8, epoch * 8 + 8), update, SHUFFLE, 0), run_seed).reshape(-1).tolist()

    def mixed(x: int, key: int) -> int:
        x = (x ^ key) * 0x9E3779B1 & WORD
        x = (x ^ x >> 15) * 0x85EBCA77 & WORD
        x = (x ^ x >> 13) * 0xC2B2AE3D & WORD
        return x ^ x >> 16

    def encrypted(x: int) -> int:
        left_bits, right_bits = bits // 2, bits - bits // 2
        for key in keys[:rounds]:
            left, right = x >> right_bits, x % 2**right_bits
            x = right * 2**left_bits + (left ^ mixed(right, key)) % 2**left_bits
            left_bits, right_bits = right_bits, left_bits
        return x

    def landed(x: int) -> int:
        x = encrypted(x)
        while x >= n:
            x = encrypted(x)
        return x

    return [landed(i) for i in range(n)]


def newton_schulz(matrix: Array, rounds: int = 5) -> Array:
    """The quintic iteration of Muon (Jordan et al., 2024), from a Frobenius norm of 1; the matrix as it stands."""
    dtype = matrix.dtype.type
    x = matrix / (np.sqrt((matrix * matrix).sum()) + dtype(1e-7))
    for _ in range(rounds):
        gram = x.T @ x
        x = dtype(3.4445) * x + x @ (dtype(-4.7750) * gram + dtype(2.0315) * gram @ gram)
    return x


def muon(
    parameters: Array,
    gradient: Array,
    scale: Array,
    momentum: Array,
    offset: Array,
    schedule: Array,
    inputs: int,
    outputs: int,
    beta: float,
) -> tuple[Array, Array]:
    """Parameters and momentum after a step on the matrices at `offset`; its length from arXiv:2502.16982, eq. 4."""
    parameters, momentum = parameters.copy(), momentum.copy()
    for begin in offset:
        own = slice(begin, begin + inputs * outputs)
        g = gradient[own] * scale
        momentum[own] = beta * momentum[own] + (1 - beta) * g
        looked_ahead = (beta * momentum[own] + (1 - beta) * g).reshape(inputs, outputs)
        length = parameters.dtype.type(0.2) * np.sqrt(parameters.dtype.type(max(inputs, outputs)))
        parameters[own] -= schedule[0] * length * newton_schulz(looked_ahead).reshape(-1)
    return parameters, momentum
