"""The Muon optimizer, for matrices."""

from torch import Tensor

from kernels.launcher import In, Kernel, Out, Scalar, Size

MOMENTUM = 0.95
_LINE = 16  # floats: rows of the scratch are padded to it

MUON = Kernel(
    "muon",
    [
        Out("parameters", "float32", ("n",)),
        In("gradient", "float32", ("n",)),
        In("scale", "float32", (1,)),
        Out("momentum", "float32", ("n",)),
        In("offset", "int32", ("M",)),
        Out("scratch", "float32", ("M", "S")),
        In("schedule", "float32", (3,)),
        Size("n"),
        Size("M"),
        Size("S"),
        Scalar("beta", "float32"),
    ],
    blocks=lambda size: size["M"],
    constants=("INPUTS", "OUTPUTS"),
)


def scratch_size(inputs: int, outputs: int) -> int:
    """S: floats of scratch that a matrix takes."""
    length, width = max(inputs, outputs), min(inputs, outputs)
    return 2 * (length + width) * (-(-width // _LINE) * _LINE)


def muon(
    parameters: Tensor,
    gradient: Tensor,
    scale: Tensor,
    momentum: Tensor,
    offset: Tensor,
    scratch: Tensor,
    schedule: Tensor,
    *,
    inputs: int,
    outputs: int,
) -> None:
    """One step of Muon on M matrices of one shape in the flat buffers, on `gradient * scale`.

    The step is the learning rate times 0.2 * sqrt(max(inputs, outputs)) times the momentum, made nearly orthogonal.
    Sources: Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024, with momentum 0.95,
    Nesterov's, and 5 rounds of the quintic iteration; the factor from Liu et al., arXiv:2502.16982, eq. 4.

    Args:
        parameters, momentum: (n,) float32, updated where the matrices lie.
        gradient: (n,) float32.
        scale: (1,) float32, the clipping's factor.
        offset: (M,) int32, where each matrix begins; it lies there as (inputs, outputs), row after row. No two overlap.
        scratch: (M, scratch_size(inputs, outputs)) float32 on a cache line, overwritten.
        schedule: (3,) float32: the learning rate, and two numbers that only Adam reads.

    Raises:
        ValueError: an array is not as stated.
    """
    wanted = scratch_size(inputs, outputs)
    if scratch.shape[-1] != wanted:
        raise ValueError(f"muon: scratch must be (M, {wanted}) for {inputs} x {outputs}; got {tuple(scratch.shape)}")
    arrays = (parameters, gradient, scale, momentum, offset, scratch, schedule)
    MUON(*arrays, MOMENTUM, INPUTS=inputs, OUTPUTS=outputs)
