"""Clipping by the gradient's global norm."""

from torch import Tensor

from kernels.launcher import In, Kernel, Out, Scalar, Size, partitions

SQUARES = Kernel(
    "squares",
    [In("gradient", "float32", ("n",)), Out("partials", "float32", ("P",)), Size("n"), Size("P")],
    blocks=lambda size: size["P"],
    file="global_norm",
    threads=32,
)
CLIP_SCALE = Kernel(
    "clip_scale",
    [
        In("partials", "float32", ("P",)),
        Out("norm", "float32", (1,)),
        Out("scale", "float32", (1,)),
        Size("P"),
        Scalar("max_norm", "float32"),
    ],
    blocks=lambda size: 1,
    file="global_norm",
    threads=32,
)


def global_norm(gradient: Tensor, norm: Tensor, scale: Tensor, max_norm: float) -> None:
    """Writes the norm of the flat gradient and the factor that clips it, min(1, max_norm / (norm + 1e-6)).

    Source: Pascanu et al., arXiv:1211.5063. The gradient itself stays as it is; the optimizer applies the factor.

    Args:
        gradient: (n,) float32.
        norm, scale: (1,) float32, written; `norm` is that before clipping.

    Raises:
        ValueError: an array is not as stated.
    """
    partials = gradient.new_empty(partitions(len(gradient)))
    SQUARES(gradient, partials)
    CLIP_SCALE(partials, norm, scale, max_norm)
