"""Generalized advantage estimation."""

from torch import Tensor

from kernels.launcher import In, Kernel, Out, Scalar, Size

GAE = Kernel(
    "gae",
    [
        In("rewards", "float32", ("T", "N")),
        In("values", "float32", ("T+1", "N")),
        In("final_values", "float32", ("T", "N")),
        In("terminated", "uint8", ("T", "N")),
        In("truncated", "uint8", ("T", "N")),
        Out("advantages", "float32", ("T", "N")),
        Out("returns", "float32", ("T", "N")),
        Size("T"),
        Size("N"),
        Scalar("gamma", "float32"),
        Scalar("gae_lambda", "float32"),
    ],
    blocks=lambda size: -(-size["N"] // 128),
)


def gae(
    rewards: Tensor,
    values: Tensor,
    final_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    advantages: Tensor,
    returns: Tensor,
    gamma: float,
    gae_lambda: float,
) -> None:
    """Writes `advantages` and `returns` of a rollout of T steps of N environments.

    A termination bootstraps from nothing, a truncation from the value of the episode's last observation, and the
    recursion stops at either. Where a step is both, the termination wins. Source: Schulman et al., arXiv:1506.02438,
    eq. 16; time limits: Pardo et al., arXiv:1712.00378.

    Args:
        rewards: (T, N) float32, r_t.
        values: (T+1, N) float32, V(s_0) to V(s_T).
        final_values: (T, N) float32, the value of the observation an episode ended on; read only at truncations.
        terminated, truncated: (T, N) uint8.
        advantages, returns: (T, N) float32, written.
        gamma, gae_lambda: discount and GAE's lambda.

    Raises:
        ValueError: an array is not as stated.
    """
    GAE(rewards, values, final_values, terminated, truncated, advantages, returns, gamma, gae_lambda)
