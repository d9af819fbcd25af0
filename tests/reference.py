"""What every kernel computes, in NumPy, slow and obvious.

Real-valued functions compute in the type of the arrays they are given: float64 is the truth that a kernel is compared
with, float32 the plain implementation whose error is the measure of the kernel's. Whole numbers are exact.
"""

from __future__ import annotations

from itertools import pairwise
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


def ppo_terms(
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
    choices: tuple[int, ...] = (),
) -> tuple[Array, Array, list[Array]]:
    """The loss' gradient by parameters and value, and each sample's five metrics (Schulman et al., arXiv:1707.06347).

    Several choices, each of so many actions: their log-probabilities and entropies are summed.
    """
    action, old_log_prob, returns = action[index], old_log_prob[index], returns[index]
    a = (advantage[index] - shift[0]) * shift[1]
    samples = parameters.dtype.type(len(value))
    if not np.issubdtype(action.dtype, np.floating):
        log_prob = entropy = np.zeros_like(value)
        by_logits = []
        each = np.split(parameters, np.cumsum(choices)[:-1], axis=-1) if choices else [parameters]
        for logits, chosen in zip(each, action.reshape(len(action), -1).T, strict=True):
            log_probs, h = categorical(logits)
            probs, taken = np.exp(log_probs), np.arange(logits.shape[1]) == chosen[:, None]
            log_prob, entropy = log_prob + log_probs[taken], entropy + h
            by_logits.append((taken.astype(parameters.dtype) - probs, -probs * (log_probs + h[:, None])))
        log_prob_gradient, entropy_gradient = (np.concatenate(g, axis=-1) for g in zip(*by_logits, strict=True))
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
    return (
        grad_parameters,
        grad_value,
        [
            -np.minimum(surrogate, clipped),
            (value - returns) ** 2 / 2,
            entropy,
            (ratio - 1) - log_ratio,
            (np.abs(ratio - 1) > clip_coef).astype(parameters.dtype),
        ],
    )


def ppo_loss(*arguments: Any) -> tuple[Array, Array, Array]:
    """The loss' gradient by parameters and value, and the five metrics: means of what `ppo_terms` gives."""
    grad_parameters, grad_value, terms = ppo_terms(*arguments)
    return grad_parameters, grad_value, np.array([term.mean() for term in terms], grad_value.dtype)


def mlp_towers(mlp: Any) -> tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]:
    """The layers of the actor and of the critic, heads included: offset, rows (the last one is the bias), columns.

    `mlp` has the attributes of kernels.mlp.MLP; a shared trunk stands in both.
    """
    widths, depth = [mlp.observation, *mlp.hidden], len(mlp.hidden)
    trunk = [(inputs + 1, outputs) for inputs, outputs in pairwise(widths)]
    outputs = int(np.sum(mlp.actions))
    critic = [*mlp.offsets[:depth], mlp.offsets[depth + 1]] if mlp.shared else mlp.offsets[depth + 1 : 2 * depth + 2]
    actor_layers, critic_layers = ([*trunk, (widths[-1] + 1, width)] for width in (outputs, 1))
    return (
        [(offset, *shape) for offset, shape in zip(mlp.offsets[: depth + 1], actor_layers, strict=True)],
        [(offset, *shape) for offset, shape in zip(critic, critic_layers, strict=True)],
    )


def matrix(flat: Array, place: tuple[int, int, int]) -> Array:
    offset, rows, columns = place
    return flat[offset : offset + rows * columns].reshape(rows, columns)


def mlp_forward(flat: Array, observation: Array, tower: list[tuple[int, int, int]], relu: bool) -> list[Array]:
    """What each layer of a tower reads, and last its outputs. Sums begin at the bias and run over the inputs."""
    x = [observation]
    for place in tower:
        weight = matrix(flat, place)
        y = np.broadcast_to(weight[-1], (len(observation), weight.shape[1]))
        for inputs, row in zip(x[-1].T, weight[:-1], strict=True):
            y = y + inputs[:, None] * row
        x.append(y if place == tower[-1] else np.maximum(y, 0) if relu else np.tanh(y))
    return x


def mlp_values(flat: Array, observation: Array, mlp: Any) -> Array:
    return mlp_forward(flat, observation, mlp_towers(mlp)[1], mlp.relu)[-1][:, 0]


def mlp_distribution(flat: Array, observation: Array, mlp: Any) -> Array:
    """Logits, or means and log standard deviations within their bounds."""
    outputs = mlp_forward(flat, observation, mlp_towers(mlp)[0], mlp.relu)[-1]
    if mlp.discrete:
        return outputs
    log_std = np.clip(flat[mlp.offsets[-1] :][: mlp.actions], *map(flat.dtype.type, mlp.log_std_range))
    return np.concatenate([outputs, np.broadcast_to(log_std, outputs.shape)], axis=-1)


def mlp_gradient(
    flat: Array,
    observation: Array,
    index: Array,
    action: Array,
    old_log_prob: Array,
    advantage: Array,
    returns: Array,
    shift: Array,
    mlp: Any,
    clip_coef: float,
    ent_coef: float,
    vf_coef: float,
) -> tuple[Array, Array]:
    """The PPO loss' gradient by the flat parameters (zero beside them), and the metrics.

    Sums run over the samples in their order: a plain float32 sum of that kind is what the kernel's is measured by.
    """
    seen, several = observation[index], mlp.actions if isinstance(mlp.actions, tuple) else ()
    parameters, value = mlp_distribution(flat, seen, mlp), mlp_values(flat, seen, mlp)
    recorded, coefficients = (action, old_log_prob, advantage, returns, shift), (clip_coef, ent_coef, vf_coef)
    by_parameters, by_value, terms = ppo_terms(parameters, value, index, *recorded, *coefficients, several)
    gradient, outputs = np.zeros_like(flat), int(np.sum(mlp.actions))
    for tower, by_output in zip(mlp_towers(mlp), (by_parameters[:, :outputs], by_value[:, None]), strict=True):
        x, delta = mlp_forward(flat, seen, tower, mlp.relu), by_output
        for place, inputs in zip(reversed(tower), reversed(x[:-1]), strict=True):
            of_place = matrix(gradient, place)
            for sample, error in zip(inputs, delta, strict=True):
                of_place += np.outer(np.append(sample, flat.dtype.type(1)), error)
            slope = (inputs > 0).astype(flat.dtype) if mlp.relu else 1 - inputs * inputs
            delta = delta @ matrix(flat, place)[:-1].T * slope
    if not mlp.discrete:
        low, high = mlp.log_std_range
        log_std = flat[mlp.offsets[-1] :][:outputs]
        within = (low <= log_std) & (log_std <= high)
        gradient[mlp.offsets[-1] :][:outputs] = np.cumsum(by_parameters[:, outputs:], axis=0)[-1] * within
    return gradient, np.array([np.cumsum(term)[-1] for term in terms], flat.dtype) / flat.dtype.type(len(index))


def summary(
    observation: Array,
    reward: Array,
    log_prob: Array,
    value: Array,
    advantage: Array,
    target: Array,
    terminated: Array,
    truncated: Array,
    episode_return: Array,
    episode_length: Array,
    metrics: Array,
    norms: Array,
) -> list[float]:
    """An iteration's numbers in float64: NaN where there is nothing to divide by."""
    ended = (terminated | truncated).astype(bool)
    target, error = (x.astype(np.float64) for x in (target, target.astype(np.float64) - value[: len(target)]))
    not_finite = sum(int((~np.isfinite(x)).sum()) for x in (observation, reward, log_prob, value, advantage))
    returns, lengths = (x[ended].astype(np.float64) for x in (episode_return, episode_length))
    constant = np.ptp(target) == 0
    return [
        float(ended.sum()),
        returns.mean() if ended.any() else np.nan,
        lengths.mean() if ended.any() else np.nan,
        np.nan if constant else 1 - error.var() / target.var(),
        float(not_finite),
        norms.astype(np.float64).mean(),
        *metrics.astype(np.float64).mean(axis=0),
    ]


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


def shuffle(n: int, iteration: int, epoch: int, run_seed: int) -> list[int]:
    """A Feistel network over the smallest power of two that holds n, walked until it lands below n."""
    bits = max(2, (n - 1).bit_length())
    rounds = min(32, 8 + 48 // bits)
    keys = philox(counters(range(epoch * 8, epoch * 8 + 8), iteration, SHUFFLE, 0), run_seed).reshape(-1).tolist()

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
