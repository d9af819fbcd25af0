"""What the kernels of two hidden layers of 64, apart, take of a GPU: the gates' rows are of small networks."""

from pathlib import Path

import pytest
from cases import CASES
from networks import network
from test_nvrtc import ARCHITECTURES, MAX_REGISTERS, MAX_REGISTERS_OF, alone

from kernels import mlp
from kernels.launcher import SHARED_LIMITS, Kernel, compile_cubin

DEFAULT = network((64, 64), 4, 2)
DEFAULT_TILE = 64 * 1024  # bytes: what the smallest device gives a block


@pytest.mark.parametrize(
    "kernel", [mlp.GRADIENT["one"], mlp.VALUES, mlp.DISTRIBUTION, mlp.ROLLOUT["one"]], ids=lambda kernel: kernel.name
)
@pytest.mark.parametrize("architecture", ARCHITECTURES[1:])
def test_the_default_network_does_not_spill(kernel: Kernel, architecture: str, tmp_path: Path) -> None:
    """Two tiles fit any device."""
    header = CASES["mlp_rollout-cartpole"].header if kernel.name == "mlp_rollout" else None
    state = {"STATE": 4, "AGENTS": 1} if header else {}
    cubin = compile_cubin(alone(kernel, tmp_path), architecture, header, **DEFAULT.constants, **state)
    assert 0 < cubin.registers <= MAX_REGISTERS_OF.get(kernel.name, MAX_REGISTERS)
    assert (cubin.spill_bytes, cubin.stack_bytes) == (0, 0)
    _, shared = kernel.device_unit(SHARED_LIMITS[architecture], header, {**DEFAULT.constants, **state})
    assert 0 < shared <= DEFAULT_TILE
