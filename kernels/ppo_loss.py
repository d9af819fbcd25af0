"""The PPO loss with its gradient."""

from torch import Tensor

from kernels.launcher import Constant, In, Kernel, Out, Scalar, Size, partitions
from kernels.sample import expect_logits

METRICS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction")


def _kernel(parameters: str, action_dtype: str, action_shape: tuple[str, ...]) -> Kernel:
    return Kernel(
        "ppo_loss",
        [
            In("parameters", "float32", ("B", parameters)),
            In("value", "float32", ("B",)),
            In("index", "int32", ("B",)),
            In("action", action_dtype, action_shape),
            In("old_log_prob", "float32", ("M",)),
            In("advantage", "float32", ("M",)),
            In("returns", "float32", ("M",)),
            In("shift", "float32", (2,)),
            Out("grad_parameters", "float32", ("B", parameters)),
            Out("grad_value", "float32", ("B",)),
            Out("partials", "float32", ("P", len(METRICS))),
            Size("B"),
            Size("P"),
            Scalar("clip_coef", "float32"),
            Scalar("ent_coef", "float32"),
            Scalar("vf_coef", "float32"),
        ],
        blocks=lambda size: size["P"],
        constants=("ACTIONS", "DISCRETE"),
        threads=32,
    )


CATEGORICAL = _kernel("ACTIONS", "int32", ("M",))
SEVERAL = _kernel("PARAMETERS", "int32", ("M", "ACTIONS"))
GAUSSIAN = _kernel("2ACTIONS", "float32", ("M", "ACTIONS"))
SUM = Kernel(
    "sum_partials",
    [
        In("partials", "float32", ("P", "K")),
        Out("mean", "float32", ("K",)),
        Size("P"),
        Size("K"),
        Scalar("count", "int32"),
    ],
    blocks=lambda size: 1,
    threads=32,
)


def ppo_loss(
    parameters: Tensor,
    value: Tensor,
    index: Tensor,
    action: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    returns: Tensor,
    shift: Tensor,
    grad_parameters: Tensor,
    grad_value: Tensor,
    metrics: Tensor,
    *,
    clip_coef: float,
    ent_coef: float,
    vf_coef: float,
    sizes: tuple[int, ...] = (),
) -> None:
    """Writes the gradient of a minibatch's loss by the policy's outputs, and the minibatch's metrics.

    loss = policy_loss - ent_coef * entropy + vf_coef * value_loss, with the clipped surrogate of Schulman et al.
    (arXiv:1707.06347, eq. 7) and value_loss = 0.5 * mean((V - R)^2). Clipping bounds the credit of a sampled action; it
    does not keep the ratio inside [1 - clip_coef, 1 + clip_coef].

    Args:
        parameters: (B, A) logits, of several choices one after the other, or (B, 2A) means and log standard deviations
            where actions are float32.
        value: (B,) float32, V of the policy that is being updated.
        index: (B,) int32, the samples' rows among the rollout's M.
        action: (M,) int32, (M, K) int32 for K choices, or (M, A) float32.
        old_log_prob, advantage, returns: (M,) float32.
        shift: (2,) float32: an advantage a enters as (a - shift[0]) * shift[1].
        grad_parameters, grad_value: as `parameters` and `value`, written.
        sizes: where there are several choices, the number of actions of each.
        metrics: (5,) float32, written: means over the minibatch, in the order of METRICS.

    Raises:
        ValueError: an array is not as stated.
    """
    gaussian = action.is_floating_point()
    kernel = GAUSSIAN if gaussian else SEVERAL if sizes else CATEGORICAL
    actions: Constant = sizes or (action.shape[-1] if gaussian else parameters.shape[-1])
    if sizes:
        expect_logits("ppo_loss", parameters, sizes)
    partials = metrics.new_empty(partitions(len(value)), len(METRICS))
    samples = (index, action, old_log_prob, advantage, returns, shift)
    written = (grad_parameters, grad_value, partials)
    kernel(
        parameters, value, *samples, *written, clip_coef, ent_coef, vf_coef, ACTIONS=actions, DISCRETE=int(not gaussian)
    )
    SUM(partials, metrics, len(value))
