"""`python -m benchmarks.gpu_limits`: writes docs/gpu.md, what can be known of the GPU path without a GPU.

Registers, spills and shared memory are NVRTC's; how many blocks a multiprocessor holds, and the least time that an
iteration can take, follow by arithmetic. Nothing is measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

import envs
from envs.spec import EnvSpec
from kernels import adam, advantage_shift, env, gae, global_norm, mlp, ppo_loss, sample, shuffle, summary
from kernels.launcher import SHARED_LIMITS, Constant, Cubin, Kernel, compile_cubin
from kernels.launcher import partitions as reduction_blocks
from kernels.mlp import MLP, partitions, tiles
from kernels.ppo_loss import METRICS
from pipeline import config as configuration
from pipeline.config import Config
from pipeline.mlp import shapes
from pipeline.policy import build

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "gpu.md"
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
# Of a multiprocessor: registers, threads and blocks (CUDA C++ Programming Guide, technical specifications).
REGISTERS, THREADS, BLOCKS = 65536, 2048, 32
RESERVED = 1024  # bytes of shared memory that each block takes beside its own
# H200: bytes a second from memory, and float32 operations a second (a multiply-add is two).
BANDWIDTH, FLOPS = 4.3e12, 60e12
SHARE = (0.30, 0.45)  # of FLOPS that the tile products are guessed to reach
LAUNCH = 2e-6  # seconds from one kernel of a graph to the next, a guess
SETTINGS = {
    "cartpole": ("env=cartpole", "policy.hidden=[64,64]", "ppo.num_envs=8192", "ppo.num_steps=128"),
    "breakout": ("env=breakout", "policy.hidden=[128,128]", "ppo.num_envs=8192", "ppo.num_steps=128"),
}


@dataclass(frozen=True)
class Network:
    """A training as the kernels are compiled for it."""

    config: Config
    spec: EnvSpec
    mlp: MLP
    parameters: int  # floats of the flat buffer

    @property
    def samples(self) -> int:
        return self.config.ppo.batch_size


def network(*overrides: str) -> Network:
    config = configuration.load((*overrides, "ppo.total_steps=100000000", "device=cpu", "out=unused"))
    spec = envs.spec(config.env.name, config.env.max_episode_steps)
    policy, flat = build(spec, config.policy, config.seed, torch.device("cpu"))
    return Network(config, spec, shapes(policy, flat, spec, config.policy), len(flat.parameters))


# ---------------------------------------------------------------------------------------------------------------------
# What a kernel takes
# ---------------------------------------------------------------------------------------------------------------------


def resident_blocks(registers: int, shared: int, threads: int, architecture: str) -> dict[str, int]:
    """How many blocks a multiprocessor holds at once, by what limits them.

    Args:
        registers: of a thread. A warp's are given out 256 at a time, to a quarter of the multiprocessor each.
        shared: bytes of a block.
    """
    warps = -(-threads // 32)
    of_warp = -(-registers * 32 // 256) * 256
    every = SHARED_LIMITS[architecture] + RESERVED
    return {
        "registers": REGISTERS // 4 // of_warp * 4 // warps,
        "shared memory": every // (-(-(shared + RESERVED) // 128) * 128),
        "threads": min(BLOCKS, THREADS // (32 * warps)),
    }


def kernels(net: Network) -> list[tuple[Kernel, Path | None, Mapping[str, Constant]]]:
    """Each kernel that trains on native environments, with what it is compiled with."""
    own, header = net.mlp.constants, net.spec.header
    played = {**own, "STATE": net.spec.state_size, "AGENTS": net.spec.agents}
    stepped = {name: played[name] for name in env.ENV_STEP_DISCRETE.constants}
    loss = {name: own[name] for name in ("ACTIONS", "DISCRETE")}
    fused = (mlp.PACK, mlp.VALUES, mlp.FINAL_VALUES, mlp.GRADIENT["one"], mlp.REDUCE, mlp.POLICY_METRICS["one"])
    plain = (
        *(gae.GAE, shuffle.SHUFFLE, advantage_shift.ADVANTAGE_SHIFT, global_norm.CLIP_SCALE, adam.ADAM),
        *(ppo_loss.SUM, summary.ROLLOUT_SUMS, summary.SUMMARY, global_norm.SQUARES),
    )
    return [
        (mlp.ROLLOUT["one"], header, played),
        *((kernel, None, own) for kernel in fused),
        *((kernel, None, {}) for kernel in plain),
        (env.ENV_STEP_DISCRETE, header, stepped),
        (sample.CATEGORICAL, None, loss),
        (ppo_loss.CATEGORICAL, None, loss),
    ]


def cell(kernel: Kernel, cubin: Cubin, tile: int, architecture: str) -> str:
    """Registers, bytes spilled, KiB of shared memory; blocks a multiprocessor and by what limited, occupancy."""
    shared = cubin.shared_bytes + tile
    found = resident_blocks(cubin.registers, shared, kernel.threads, architecture)
    blocks = min(found.values())
    why = next(name for name, count in found.items() if count == blocks)
    occupancy = blocks * kernel.threads / THREADS
    return f"{cubin.registers} / {cubin.spill_bytes} / {shared / 1024:.1f}; {blocks} ({why}), {occupancy:.0%}"


def takes(net: Network) -> list[str]:
    rows = []
    for kernel, header, constants in kernels(net):
        cells = []
        for architecture in ARCHITECTURES:
            cubin = compile_cubin(kernel, architecture, header, **constants)
            _, tile = kernel.device_unit(SHARED_LIMITS[architecture], header, constants)
            cells.append(cell(kernel, cubin, tile, architecture))
        rows.append(f"| `{kernel.name}` | {kernel.threads} | " + " | ".join(cells) + " |\n")
    return rows


# ---------------------------------------------------------------------------------------------------------------------
# What an iteration is
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """Launches of one kernel in an iteration, all together."""

    kernel: str
    launches: int
    blocks: int  # of a launch
    bytes: float  # that come from memory or go there, if what is used again stays in the caches
    flops: float  # of matrix products

    @property
    def seconds(self) -> float:
        """The least that it takes: memory or arithmetic at full speed."""
        return max(self.bytes / BANDWIDTH, self.flops / FLOPS)

    def expected(self, share: float) -> float:
        """With arithmetic at a share of full speed, and launches that take their time."""
        return max(self.bytes / BANDWIDTH, self.flops / (share * FLOPS)) + self.launches * LAUNCH


def weights(widths: Sequence[int]) -> int:
    return sum(inputs * outputs for inputs, outputs in pairwise(widths))


def iteration(net: Network) -> list[Part]:
    """An iteration of the fast path, a kernel each.

    A weight is two operations forward, two for its own gradient, two for that of its input (the first layer has none).
    """
    ppo, width, state = net.config.ppo, net.mlp.observation, net.spec.state_size
    M, N, B, P = net.samples, ppo.num_envs, ppo.minibatch_size, partitions(ppo.minibatch_size)
    packed, gradient, choices = net.mlp.sizes
    hidden = list(net.mlp.hidden)
    actor, critic = weights([width, *hidden, choices]), weights([width, *hidden, 1])
    both, first = actor + critic, 2 * width * hidden[0]
    steps = ppo.update_epochs * ppo.num_minibatches
    recorded = 4 * 4  # bytes of a sample beside its observation: action, log-probability, advantage, return
    outputs = 4 * 6 + 2  # of a step: action, log-probability, entropy, reward, return, length; two flags
    n = net.parameters
    return [
        Part("mlp_rollout", 1, tiles(N), M * (4 * width + outputs + 4 + 8 * state), M * 2 * actor),
        Part("mlp_values", 1, -(-(M + N) // 192), (M + N) * 4 * (width + 1), (M + N) * 2 * critic),
        Part("mlp_final_values", 1, -(-M // 4096), M * 2, 0),
        Part("gae", 1, -(-N // 128), M * (4 * 4 + 2 + 8), 0),
        Part("shuffle", ppo.update_epochs, shuffle.SHUFFLE.blocks({"n": M}), ppo.update_epochs * M * 4, 0),
        Part("advantage_shift", ppo.update_epochs, ppo.num_minibatches, ppo.update_epochs * 2 * M * 8, 0),
        Part(
            "mlp_gradient", steps, P * (1 if net.mlp.shared else 2),
            steps * (B * (2 * (4 * width + 4) + recorded) + P * gradient * 4), steps * B * 2 * (3 * both - first),
        ),
        Part("mlp_reduce", steps, reduction_blocks(n), steps * P * gradient * 4, 0),
        Part("clip_scale", steps, 1, 0, 0),
        Part("adam", steps, adam.ADAM.blocks({"n": n}), steps * n * 4 * 7, 0),
        Part("mlp_pack", steps + 1, mlp.PACK.blocks({"n": n}), (steps + 1) * 4 * (n + packed), 0),
        Part("mlp_policy_metrics", 1, P, B * (4 * width + recorded), B * 2 * actor),
        Part("sum_partials", 1, 1, P * len(METRICS) * 4, 0),
        Part("rollout_sums", 1, summary.partitions(M), M * (4 * width + 4 * 7 + 2), 0),
        Part("summary", 1, 1, 0, 0),
    ]  # fmt: skip


def table(net: Network) -> list[str]:
    parts = iteration(net)
    rows = [
        f"| `{p.kernel}` | {p.launches} | {p.blocks:,} | {p.bytes / 1e6:,.1f} | {p.flops / 1e9:,.1f} "
        f"| {p.seconds * 1e3:.3f} | {p.expected(SHARE[1]) * 1e3:.2f} to {p.expected(SHARE[0]) * 1e3:.2f} | |\n"
        for p in parts
    ]
    least, fast, slow = (
        sum(times)
        for times in zip(*((p.seconds, p.expected(SHARE[1]), p.expected(SHARE[0])) for p in parts), strict=True)
    )
    total: Mapping[str, Any] = {"bytes": sum(p.bytes for p in parts), "flops": sum(p.flops for p in parts)}
    rows.append(
        f"| all | {sum(p.launches for p in parts)} | | {total['bytes'] / 1e6:,.1f} | {total['flops'] / 1e9:,.1f} "
        f"| {least * 1e3:.3f} | {fast * 1e3:.2f} to {slow * 1e3:.2f} | |\n"
    )
    million = net.samples / 1e6
    rows.append(
        f"\n{net.samples:,} steps in at least {least * 1e3:.1f} ms: no more than {million / least:,.0f} M steps/s; "
        f"expected {million / slow:,.0f} to {million / fast:,.0f} M, less what waits for latency.\n"
    )
    return rows


HEAD = """# The GPU path before a GPU

Made by `python -m benchmarks.gpu_limits`. **Everything on this page is compiled or calculated, nothing is measured**:
the kernels give their bits on the emulated device ([kernels.md](kernels.md)), and have not run on a GPU. The columns
"measured" are empty until they have.

## What the kernels take

At the default network (CartPole, two towers of 64 and 64), threads a block, then for each architecture: registers of a
thread / bytes spilled / KiB of shared memory of a block (a tile's included); how many blocks a multiprocessor holds and
what limits them, and the share of its {threads} threads that those are (the theoretical occupancy). A quarter of the
threads is what products in registers are made for: they hide latency by their independent chains.

| kernel | threads | {architectures} |
|---|---:|---|---|---|
"""
WORK = """
## An iteration: {name}, {envs:,} environments, {steps} steps, hidden {hidden}

{samples:,} samples, {epochs} epochs of {minibatches} minibatches of {minibatch:,}. A weight costs two operations a
sample forward, two for its own gradient, two for that of its input, which the first layer has none of: an epoch's
sample is {update:,} operations, a step of the rollout {actor:,}, a value {critic:,}. Bytes are those between memory
and chip, if what is read again comes from a cache. *Least*: max(bytes / {bandwidth:.1f} TB/s, operations /
{flops:.0f} TFLOP/s), an H200's. *Expected*: the products at {fast:.0%} to {slow:.0%} of that, a judgement from the
assembler's inner loops (64 multiply-adds of 83 instructions forward, 128 of 153 backward) and the barriers between
them, and {launch:.0f} us a launch within a graph. What waits for latency (below) is in neither.

| kernel | launches | blocks each | MB | GFLOP | least, ms | expected, ms | measured, ms |
|---|---:|---:|---:|---:|---:|---:|---:|
"""
WEAK = """
## What a GPU will not like

No result depends on any of these; each is a question for the first profile.

- `mlp_rollout` holds 32 environments in a block, so 8,192 of them are 256 blocks: two a multiprocessor on an H200,
  and a step's layers wait for one another. Its time is T times a step's latency, not what its operations come to:
  at a guess of 20 us a step, 128 steps take 2.6 ms. More environments cost nothing until the device is full.
- A minibatch is divided into at most 512 partitions, 1,024 blocks of two towers. One of 16,384 samples has 64
  partitions: 128 blocks, fewer than an H200 has multiprocessors. Large minibatches fill a GPU, small ones do not;
  the rule is the same on every machine, since it orders the sums.
- A tile's share of the gradient is added to its partition's sums where they lie: they are read and written once for
  each tile of 32 to 128 samples. Those of the resident blocks are some 50 MB at hidden 128 (three blocks a
  multiprocessor), as much as an H200's second cache holds: where they leave it, memory sees up to 15 times the
  partials' bytes, 14 ms an iteration of Breakout.
- The heads have few outputs: their products, and the sums over a tile's samples for biases and metrics, keep some
  dozens of a block's 128 threads at work.
- `mlp_final_values` looks for cut episodes with one thread a block, 4,096 flags each: some 0.1 ms an iteration.
- `clip_scale` adds up to 512 sums in one thread, in every step of the optimizer: some 5 us each.
- `mlp_reduce` walks through up to 512 partitions with a thread for each 4 floats, in a block for each 256 parameters:
  few blocks for a small network, some 50 us in every step of the optimizer.
- `gae` walks back through T steps with a thread an environment: N / 128 blocks.
- `rollout_sums` adds in float64, 64 blocks of 32 threads: some 0.2 ms an iteration.
- Rows of the observations are gathered at random: whole rows of D floats, so bytes are wasted where 4 D is no
  multiple of 32.
- `advantage_shift` has a block for each minibatch. All its 512 threads gather, 32 chains add.
"""


def document() -> str:
    nets = {name: network(*overrides) for name, overrides in SETTINGS.items()}
    text = HEAD.format(threads=f"{THREADS:,}", architectures=" | ".join(ARCHITECTURES))
    text += "".join(takes(nets["cartpole"]))
    for net in nets.values():
        ppo, hidden = net.config.ppo, list(net.mlp.hidden)
        actor, critic = (weights([net.mlp.observation, *hidden, outputs]) for outputs in (net.mlp.sizes[2], 1))
        text += WORK.format(
            name=net.config.env.title, envs=ppo.num_envs, steps=ppo.num_steps, hidden=" and ".join(map(str, hidden)),
            samples=net.samples, epochs=ppo.update_epochs, minibatches=ppo.num_minibatches,
            minibatch=ppo.minibatch_size, actor=2 * actor, critic=2 * critic,
            update=2 * (3 * (actor + critic) - 2 * net.mlp.observation * hidden[0]), bandwidth=BANDWIDTH / 1e12,
            flops=FLOPS / 1e12, fast=SHARE[1], slow=SHARE[0], launch=LAUNCH * 1e6,
        )  # fmt: skip
        text += "".join(table(net))
    return text + WEAK


if __name__ == "__main__":
    DOCUMENT.write_text(document())
    Console().print(DOCUMENT.relative_to(DOCUMENT.parents[1]))
