"""docs/gpu.md: its arithmetic by hand, and that it has every kernel that trains."""

import re
from pathlib import Path

import pytest

from benchmarks import gpu_limits
from benchmarks.gpu_limits import Part, resident_blocks
from kernels import mlp
from kernels.launcher import SHARED_LIMITS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def net() -> gpu_limits.Network:
    return gpu_limits.network("env=cartpole", "ppo.num_envs=8192", "ppo.num_steps=128")


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "blocks"),
    [
        # 110 registers are given out as 112: 14 KiB of 256 a block, 64 Ki in all
        (110, 0, 128, {"registers": 4, "shared memory": 228, "threads": 16}),
        # 48 KiB and the one that a block takes beside: four in 228
        (32, 48 << 10, 128, {"registers": 16, "shared memory": 4, "threads": 16}),
        # one warp a block: no more than 32 of them
        (32, 1 << 10, 32, {"registers": 64, "shared memory": 114, "threads": 32}),
    ],
)
def test_resident_blocks_by_hand(registers: int, shared: int, threads: int, blocks: dict[str, int]) -> None:
    assert resident_blocks(registers, shared, threads, "sm_90") == blocks


def test_operations_by_hand(net: gpu_limits.Network) -> None:
    """CartPole: 4 inputs, two towers of 64 and 64, two actions and a value."""
    parts = {part.kernel: part for part in gpu_limits.iteration(net)}
    actor, critic = 4 * 64 + 64 * 64 + 64 * 2, 4 * 64 + 64 * 64 + 64
    samples = 8192 * 128
    assert parts["mlp_rollout"].flops == samples * 2 * actor
    assert parts["mlp_gradient"].flops == 4 * samples * (6 * (actor + critic) - 2 * 2 * 4 * 64)
    assert parts["mlp_gradient"].launches == 4 * net.config.ppo.num_minibatches


def test_time_is_that_of_memory_or_of_arithmetic() -> None:
    assert Part("", 1, 1, bytes=4.3e9, flops=6e9).seconds == pytest.approx(1e-3)
    assert Part("", 1, 1, bytes=4.3e8, flops=6e10).seconds == pytest.approx(1e-3)


def test_every_kernel_that_trains_is_on_the_page(net: gpu_limits.Network) -> None:
    page = (ROOT / "docs" / "gpu.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| \d+ / ", page, re.M)
    wanted = [(kernel.name, str(kernel.threads)) for kernel, *_ in gpu_limits.kernels(net)]
    assert rows == wanted
    assert {part.kernel for part in gpu_limits.iteration(net)} <= {name for name, _ in wanted}


def test_no_kernel_on_the_page_spills() -> None:
    page = (ROOT / "docs" / "gpu.md").read_text()
    spilled = [int(bytes_) for bytes_ in re.findall(r"\| \d+ / (\d+) / [\d.]+; ", page)]
    assert len(spilled) >= 3 * 15
    assert not any(spilled)


def test_the_tile_is_the_launchers(net: gpu_limits.Network) -> None:
    _, shared = mlp.GRADIENT["one"].device_unit(SHARED_LIMITS["sm_90"], None, net.mlp.constants)
    page = (ROOT / "docs" / "gpu.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| `mlp_gradient` | 128 |"))
    assert f"/ {shared / 1024:.1f};" in row
