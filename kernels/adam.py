"""The Adam optimizer."""

from torch import Tensor

from kernels.launcher import In, Kernel, Out, Scalar, Size

BETA1, BETA2 = 0.9, 0.999
EPSILON = 1e-5  # PPO's customary value; torch's default is 1e-8

ADAM = Kernel(
    "adam",
    [
        Out("parameters", "float32", ("n",)),
        In("gradient", "float32", ("n",)),
        In("scale", "float32", (1,)),
        Out("first_moment", "float32", ("n",)),
        Out("second_moment", "float32", ("n",)),
        In("schedule", "float32", (3,)),
        Size("n"),
        Scalar("beta1", "float32"),
        Scalar("beta2", "float32"),
        Scalar("epsilon", "float32"),
    ],
    blocks=lambda size: -(-size["n"] // 4096),
)


def adam(
    parameters: Tensor, gradient: Tensor, scale: Tensor, first_moment: Tensor, second_moment: Tensor, schedule: Tensor
) -> None:
    """One step of Adam over the flat buffers, on `gradient * scale`.

    Source: Kingma and Ba, arXiv:1412.6980, with beta 0.9 and 0.999 and epsilon 1e-5.

    Args:
        parameters, first_moment, second_moment: (n,) float32, updated.
        gradient: (n,) float32.
        scale: (1,) float32, the clipping's factor.
        schedule: (3,) float32: learning rate, 1 - beta1^t, 1 - beta2^t, where t counts steps from 1.

    Raises:
        ValueError: an array is not as stated.
    """
    ADAM(parameters, gradient, scale, first_moment, second_moment, schedule, BETA1, BETA2, EPSILON)
