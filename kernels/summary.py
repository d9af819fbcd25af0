"""An iteration in numbers."""

from torch import Tensor

from kernels.launcher import In, Kernel, Out, Size

SUMS = 9
ROLLOUT_SUMS = Kernel(
    "rollout_sums",
    [
        In("observation", "float32", ("X",)),
        In("reward", "float32", ("M",)),
        In("log_prob", "float32", ("M",)),
        In("value", "float32", ("V",)),
        In("advantage", "float32", ("M",)),
        In("target", "float32", ("M",)),
        In("terminated", "uint8", ("M",)),
        In("truncated", "uint8", ("M",)),
        In("episode_return", "float32", ("M",)),
        In("episode_length", "int32", ("M",)),
        Out("partials", "float64", ("P", SUMS)),
        Size("X"),
        Size("M"),
        Size("V"),
    ],
    blocks=lambda size: size["P"],
    file="summary",
    threads=32,
)
SUMMARY = Kernel(
    "summary",
    [
        In("partials", "float64", ("P", SUMS)),
        In("metrics", "float32", ("K", "W")),
        In("norms", "float32", ("K",)),
        Out("numbers", "float64", ("W+6",)),
        Size("P"),
        Size("K"),
        Size("W"),
    ],
    blocks=lambda size: 1,
    threads=32,
)


NUMBERS = ("episodes", "episode_return_mean", "episode_length_mean", "explained_variance", "not_finite", "grad_norm")


def partitions(samples: int) -> int:
    """Into how many partial sums a rollout is divided: from its size alone."""
    return max(1, min(64, samples // 1024))


def summary(
    observation: Tensor,
    reward: Tensor,
    log_prob: Tensor,
    value: Tensor,
    advantage: Tensor,
    target: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    episode_return: Tensor,
    episode_length: Tensor,
    metrics: Tensor,
    norms: Tensor,
    partials: Tensor,
    numbers: Tensor,
) -> None:
    """Writes the numbers of an iteration: of M rows and K minibatches.

    The explained variance is 1 - Var(target - value) / Var(target): 1 is a perfect critic, 0 one that knows the mean,
    NaN where the target never changes. Means over episodes are NaN where none ended.

    Args:
        observation: (X,) float32, all that were seen.
        reward, log_prob, advantage, target: (M,) float32; `target` is what the critic learns.
        value: (V,) float32, V >= M; the first M belong to the samples.
        terminated, truncated: (M,) uint8.
        episode_return: (M,) float32; episode_length: (M,) int32; read where an episode ended. A
            row of length 0 is a filler, a step without an agent: no sample, but it has to be finite.
        metrics: (K, W) float32, of each minibatch.
        norms: (K,) float32, the gradients' norms.
        partials: (partitions(M), 9) float64, written; scratch.
        numbers: (6 + W,) float64, written: in the order of NUMBERS, then the metrics' means.

    Raises:
        ValueError: an array is not as stated.
    """
    ends = (terminated, truncated, episode_return, episode_length)
    ROLLOUT_SUMS(observation, reward, log_prob, value, advantage, target, *ends, partials)
    SUMMARY(partials, metrics, norms, numbers)
