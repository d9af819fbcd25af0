"""The fused MLP: forward, gradient and reduction against float64, over its shapes; each planted mistake is seen."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import reference
import torch
from compare import assert_close, assert_near, poisoned
from conftest import Plant
from networks import LOG_STD_RANGE, choices, flat_size, network, packed, parameters
from torch import Tensor

from kernels import compiler, mlp
from kernels.launcher import Kernel
from kernels.mlp import MLP
from kernels.ppo_loss import METRICS

pytestmark = pytest.mark.usefixtures("quick_builds")

COEFFICIENTS = (0.2, 0.01, 0.7)  # clip, entropy, value
KERNELS = {
    *(mlp.PACK, mlp.VALUES, mlp.DISTRIBUTION, mlp.FINAL_VALUES, mlp.REDUCE),
    *mlp.GRADIENT.values(),
    *mlp.POLICY_METRICS.values(),
}

SHAPES: dict[str, MLP] = {
    "64, 64, tanh, apart, 2 actions": network((64, 64), 4, 2),
    "8, ReLU, shared, 2 actions": network((8,), 1, 2, relu=True, shared=True),
    "33, 17, tanh, shared, 18 actions": network((33, 17), 3, 18, shared=True),
    "17, 9, 33, ReLU, apart, 3 actions": network((17, 9, 33), 7, 3, relu=True),
    "256, tanh, apart, 1 dimension": network((256,), 3, 1, discrete=False),
    "96, 40, ReLU, shared, 6 dimensions": network((96, 40), 17, 6, discrete=False, relu=True, shared=True),
    "8, 8, 8, tanh, apart, 2 dimensions": network((8, 8, 8), 2, 2, discrete=False),
    "33, ReLU, apart, choices of 3, 5 and 2": network((33,), 3, (3, 5, 2), relu=True),
}
ROWS = (1, 7, 33, 1000)
SMALL = network((9, 17), 3, 3)
SHARED = network((9, 17), 3, 3, relu=True, shared=True)
GAUSSIAN = network((9, 17), 3, 2, discrete=False, shared=True)


@pytest.fixture(scope="module", autouse=True)
def _programs(quick_builds: None) -> None:
    """Builds the shapes' kernels, two at a time."""
    with ThreadPoolExecutor(2) as executor:
        builds = [
            executor.submit(compiler.compile_library, kernel.host_unit(None, net.constants), kernel.name)
            for net in (*SHAPES.values(), SMALL, SHARED, GAUSSIAN)
            for kernel in (mlp.GRADIENT[net.kind], mlp.VALUES, mlp.DISTRIBUTION, mlp.REDUCE, mlp.PACK)
        ]
        for build in builds:
            build.result()


@dataclass(frozen=True)
class Samples:
    """B samples of a rollout of M, in the order of the kernel's arguments."""

    observation: Tensor
    index: Tensor
    action: Tensor
    old_log_prob: Tensor
    advantage: Tensor
    returns: Tensor
    shift: Tensor

    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(vars(self).values())


def samples(net: MLP, flat: Tensor, B: int, seed: int = 0) -> Samples:
    """Samples on both sides of the clip range, with advantages of both signs; rows beside the minibatch are NaN."""
    g = torch.Generator().manual_seed(seed)
    M = B + 10
    index = torch.randperm(M, generator=g)[:B].int()
    rows = index.long()
    observation = torch.full((M, net.observation), float("nan"))
    observation[rows] = torch.randn(B, net.observation, generator=g)
    outputs = reference.mlp_distribution(flat.double().numpy(), observation[rows].double().numpy(), net)
    if net.discrete:
        each = [torch.randint(n, (M,), generator=g, dtype=torch.int64).int() for n in choices(net)]
        action = torch.stack(each, dim=-1) if isinstance(net.actions, tuple) else each[0]
    else:
        mean, log_std = torch.from_numpy(outputs).float().chunk(2, dim=-1)
        action = torch.full((M, choices(net)[0]), float("nan"))
        action[rows] = mean + log_std.exp() * torch.randn(mean.shape, generator=g)
    old_log_prob, advantage, returns = (torch.full((M,), float("nan")) for _ in range(3))
    old_log_prob[rows] = log_prob(net, outputs, action[rows]).float() + 0.25 * torch.randn(B, generator=g)
    advantage[rows], returns[rows] = torch.randn(B, generator=g), torch.randn(B, generator=g)
    return Samples(observation, index, action, old_log_prob, advantage, returns, torch.tensor([0.1, 1.3]))


def log_prob(net: MLP, outputs: np.ndarray, action: Tensor) -> Tensor:
    """torch's, of actions (B), (B, choices) or (B, A)."""
    if not net.discrete:
        mean, log_std = torch.from_numpy(outputs).chunk(2, dim=-1)
        return torch.distributions.Normal(mean, log_std.exp()).log_prob(action).sum(-1)
    each = torch.from_numpy(outputs).split(choices(net), dim=-1)
    taken = action.view(len(action), -1)
    return sum(torch.distributions.Categorical(logits=x).log_prob(taken[:, k]) for k, x in enumerate(each))  # type: ignore[return-value]


@dataclass(frozen=True)
class Result:
    partials: Tensor
    sums: Tensor
    gradient: Tensor
    squares: Tensor
    metrics: Tensor


def run(net: MLP, flat: Tensor, batch: Samples, P: int | None = None, R: int = 3) -> Result:
    """The gradient as training computes it; all scratch is poisoned, and what is no parameter's stays 0."""
    B = len(batch.index)
    own = torch.zeros(net.sizes[0])
    net.pack(flat, own)
    Q = net.sizes[1]
    result = Result(poisoned(P or mlp.partitions(B), Q), poisoned(Q), torch.zeros(len(flat)), poisoned(R), poisoned(5))
    mlp.GRADIENT[net.kind](own, *batch.tensors(), result.partials, *COEFFICIENTS, **net.constants)
    net.reduce(result.partials, flat, result.sums, result.gradient, result.squares, result.metrics, B)
    return result


def split(flat: Any, net: MLP) -> list[Any]:
    """A flat array's matrices: each is compared by itself, lest a large one hides the error of a small one.

    log_std goes with the actor's head: its few elements share one rounding of e^-log_std over all samples.
    """
    towers = reference.mlp_towers(net)
    places = {offset: np.arange(offset, offset + rows * columns) for tower in towers for offset, rows, columns in tower}
    if not net.discrete:
        head = towers[0][-1][0]
        places[head] = np.append(places[head], net.offsets[-1] + np.arange(choices(net)[0]))
    return [flat[place] for place in places.values()]


def check_gradient(net: MLP, B: int, flat: Tensor | None = None, P: int | None = None) -> None:
    flat = parameters(net) if flat is None else flat
    batch = samples(net, flat, B)
    got = run(net, flat, batch, P)
    arguments = (flat, *batch.tensors(), net, *COEFFICIENTS)

    def matrices_and_metrics(flat: Any, *rest: Any) -> list[Any]:
        gradient, metrics = reference.mlp_gradient(np.nan_to_num(flat), *rest)
        return [*split(gradient, net), metrics]

    assert_near([*split(got.gradient, net), got.metrics], matrices_and_metrics, *arguments)
    beside = torch.ones(len(flat), dtype=torch.bool)
    beside[np.concatenate(split(np.arange(len(flat)), net))] = False
    assert (got.gradient[beside] == 0).all()
    assert float(got.squares.double().sum()) == pytest.approx(float((got.gradient.double() ** 2).sum()), rel=1e-5)


def check_values(net: MLP, rows: tuple[int, ...], seed: int = 0) -> None:
    flat = parameters(net, seed)
    own = packed(net, seed)
    observation = torch.randn(sum(rows), net.observation, generator=torch.Generator().manual_seed(seed))
    values = [poisoned(M) for M in rows]
    for part, value in zip(observation.split(rows), values, strict=True):
        net.values(own, part, value)
    assert_close([torch.cat(values)], lambda *a: [reference.mlp_values(*a)], flat, observation, net)


def check_distribution(net: MLP, rows: tuple[int, ...], seed: int = 0) -> None:
    flat = parameters(net, seed)
    if not net.discrete:
        flat[net.offsets[-1]] = 3.0  # beyond its bound
    own = torch.zeros(net.sizes[0])
    net.pack(flat, own)
    observation = torch.randn(sum(rows), net.observation, generator=torch.Generator().manual_seed(seed))
    results = [poisoned(M, net.sizes[2]) for M in rows]
    for part, result in zip(observation.split(rows), results, strict=True):
        net.distribution(own, part, result)
    assert_close([torch.cat(results)], lambda *a: [reference.mlp_distribution(*a)], flat, observation, net)


@pytest.mark.parametrize("shape", SHAPES)
def test_forward_reference(shape: str) -> None:
    check_values(SHAPES[shape], ROWS)
    check_distribution(SHAPES[shape], ROWS)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradient_reference(shape: str) -> None:
    for B in (1, 7, 33, 257, 1024):
        check_gradient(SHAPES[shape], B)


def test_gradient_is_that_of_torch_in_float64() -> None:
    """By autograd, of the default network with actor and critic apart."""
    net = SHAPES["64, 64, tanh, apart, 2 actions"]
    flat = parameters(net)
    batch = samples(net, flat, 257)
    leaf = flat.double().nan_to_num().requires_grad_()
    rows = batch.index.long()

    def outputs(tower: list[tuple[int, int, int]]) -> Tensor:
        x = batch.observation[rows].double()
        for place in tower:
            weight = reference.matrix(leaf, place)
            x = x @ weight[:-1] + weight[-1]
            x = x if place == tower[-1] else x.tanh()
        return x

    actor, critic = reference.mlp_towers(net)
    clip_coef, ent_coef, vf_coef = COEFFICIENTS
    policy = torch.distributions.Categorical(logits=outputs(actor))
    ratio = (policy.log_prob(batch.action[rows]) - batch.old_log_prob[rows]).exp()
    advantage = ((batch.advantage - batch.shift[0]) * batch.shift[1])[rows]
    policy_loss = -torch.min(ratio * advantage, ratio.clamp(1 - clip_coef, 1 + clip_coef) * advantage).mean()
    value_loss = 0.5 * ((outputs(critic)[:, 0] - batch.returns[rows]) ** 2).mean()
    (policy_loss - ent_coef * policy.entropy().mean() + vf_coef * value_loss).backward()
    got = run(net, flat, batch)
    assert torch.allclose(got.gradient.double(), leaf.grad, rtol=1e-4, atol=1e-7)
    wanted = [float(x.detach()) for x in (policy_loss, value_loss, policy.entropy().mean())]
    assert got.metrics[:3].tolist() == pytest.approx(wanted, rel=1e-5)


def single(
    net: MLP, matrices: list[list[list[float]]], observation: list[float], action: int
) -> tuple[Tensor, Samples]:
    """Parameters from matrices in the order of the offsets, and one sample of advantage 1 and return 0."""
    flat = torch.zeros(flat_size(net))
    for offset, values in zip(net.offsets, matrices, strict=True):
        piece = torch.tensor(values).flatten()
        flat[offset : offset + len(piece)] = piece
    zero = torch.zeros(1)
    seen, taken = torch.tensor([observation]), torch.tensor([action], dtype=torch.int32)
    return flat, Samples(
        seen, zero.int(), taken, torch.tensor([0.5]).log(), torch.ones(1), zero, torch.tensor([0.0, 1.0])
    )


def test_one_sample_by_hand() -> None:
    """One input 2 and 8 hidden ReLU units, of which one is alive: 2 * 3 + 1 = 7.

    Logits 0 and 0: the policy's gradient by them is (-1/2, 1/2) for advantage 1 and action 0, the entropy's is 0. The
    value is 7 * 0.5 + 0.5 = 4, of which the value loss is 8 and its gradient, times vf_coef 0.7, is 2.8.
    """
    net = network((8,), 1, 2, relu=True, shared=True)
    first = [[3.0, -3.0, *[0.0] * 6], [1.0, 1.0, *[0.0] * 6]]
    actor = [[0.0, 0.0]] * 9
    critic = [[0.5], *[[0.0]] * 7, [0.5]]
    flat, batch = single(net, [first, actor, critic], [2.0], 0)
    got = run(net, flat, batch, R=1)
    assert got.metrics.tolist() == pytest.approx([-1.0, 8.0, np.log(2), 0.0, 0.0], abs=1e-6)
    layer, actor_head, critic_head = split(got.gradient, net)
    assert layer.tolist() == pytest.approx([2 * 2.8 * 0.5, *[0.0] * 7, 2.8 * 0.5, *[0.0] * 7])
    assert actor_head.tolist() == pytest.approx([-3.5, 3.5, *[0.0] * 14, -0.5, 0.5], abs=1e-6)
    assert critic_head.tolist() == pytest.approx([19.6, *[0.0] * 7, 2.8])
    assert float(got.squares) == pytest.approx(2.8**2 + 1.4**2 + 2 * 3.5**2 + 0.5 + 19.6**2 + 2.8**2)


def check_log_std_bounds() -> None:
    """Beyond a bound there is no gradient; on it there is, as torch.clamp passes it."""
    low, high = LOG_STD_RANGE
    net = network((9, 17), 3, 4, discrete=False, shared=True)
    flat = parameters(net)
    flat[net.offsets[-1] :][:4] = torch.tensor([low - 0.5, low, high, high + 0.5])
    check_gradient(net, 33, flat=flat)
    gradient = run(net, flat, samples(net, flat, 33)).gradient[net.offsets[-1] :][:4]
    assert (gradient != 0).tolist() == [False, True, True, False]


def test_log_std_beyond_its_bounds_gets_no_gradient() -> None:
    check_log_std_bounds()


@pytest.mark.parametrize("P", [1, 2, 5, 33, 257])
def test_the_partitions_add_up(P: int) -> None:
    check_gradient(SMALL, 257, P=P)


def check_final_values(M: int = 2000) -> None:
    """Only where a time limit alone ended an episode, and there the value itself."""
    g = torch.Generator().manual_seed(M)
    observation = torch.randn(M, SHARED.observation, generator=g)
    terminated, truncated = ((torch.rand(M, generator=g) < share).to(torch.uint8) for share in (0.3, 0.7))
    own, value, found = packed(SHARED), poisoned(M), poisoned(M)
    SHARED.values(own, observation, value)
    SHARED.final_values(own, observation, terminated, truncated, found)
    cut = truncated.bool() & ~terminated.bool()
    assert torch.equal(found[cut], value[cut])
    assert found[~cut].isnan().all()


@pytest.mark.parametrize("M", [1, 7, 33, 2000])
def test_final_values_are_the_values_where_a_time_limit_cut(M: int) -> None:
    check_final_values(M)


def check_policy_metrics() -> None:
    """As the gradient's metrics, but for the value loss, which is 0."""
    net, flat = SMALL, parameters(SMALL)
    batch = samples(net, flat, 257)
    partials, own = poisoned(mlp.partitions(257), len(METRICS)), packed(net)
    net.policy_metrics(own, batch.tensors(), partials, *COEFFICIENTS[:2])
    sums = partials.double().sum(0) / 257
    wanted = run(net, flat, batch).metrics.double()
    assert float(sums[1]) == 0.0
    assert sums[[0, 2, 3, 4]].tolist() == pytest.approx(wanted[[0, 2, 3, 4]].tolist(), rel=1e-6)


def test_metrics_of_the_policy_alone() -> None:
    check_policy_metrics()


def bits(net: MLP) -> list[bytes]:
    flat = parameters(net)
    return [t.numpy().tobytes() for t in vars(run(net, flat, samples(net, flat, 257))).values()]


TILES = {
    "samples a tile": ("widest() <= 64 ? 32 : 128", "widest() <= 64 ? 64 : 128"),
    "samples the head takes": ("HEAD = 32", "HEAD = 16"),
    "rows of a register tile": ("TILE_ROWS = 8", "TILE_ROWS = 5"),
    "vectors of a register tile": ("TILE_VECTORS = 2", "TILE_VECTORS = 1"),
}


@pytest.mark.parametrize("tile", TILES)
def test_the_tiles_shape_changes_no_bit(plant: Plant, tile: str) -> None:
    wanted = bits(SMALL)
    plant(mlp.GRADIENT["one"], *TILES[tile])
    assert bits(SMALL) == wanted


def test_the_number_of_blocks_of_the_reduction_changes_no_bit() -> None:
    flat = parameters(SMALL)
    batch = samples(SMALL, flat, 33)
    one = run(SMALL, flat, batch, R=1)
    for R in (2, 7):
        again = run(SMALL, flat, batch, R=R)
        assert torch.equal(again.gradient, one.gradient)
        assert torch.equal(again.metrics, one.metrics)


def test_more_partitions_than_samples_are_never_wanted() -> None:
    assert [mlp.partitions(B) for B in (1, 3, 4, 257, 1024, 4096, 10**6)] == [1, 3, 4, 4, 4, 16, 512]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("index", lambda batch: replace(batch, index=batch.index.long())),
        ("action", lambda batch: replace(batch, action=batch.action[:-1])),
        ("advantage", lambda batch: replace(batch, advantage=batch.advantage.double())),
        ("observation", lambda batch: replace(batch, observation=batch.observation[:, :2].contiguous())),
        ("shift", lambda batch: replace(batch, shift=batch.shift[:1])),
    ],
)
def test_bad_arguments_are_refused(name: str, change: Callable[[Samples], Samples]) -> None:
    batch = change(samples(SMALL, parameters(SMALL), 33))
    with pytest.raises(ValueError, match=f"^mlp_gradient: {name} must be "):
        SMALL.gradient(packed(SMALL), batch.tensors(), torch.zeros(4, SMALL.sizes[1]), *COEFFICIENTS)


def gradients(net: MLP = SMALL) -> None:
    check_gradient(net, 257)


def gaussian_gradients() -> None:
    gradients(GAUSSIAN)


def forwards(net: MLP = SMALL) -> None:
    check_values(net, (33, 600))
    check_distribution(net, (33, 600))


def gaussian_forwards() -> None:
    forwards(GAUSSIAN)


def shared_forwards() -> None:
    forwards(SHARED)


SEARCH = "if (truncated[m] && !terminated[m])"
BOUND = "if (!own || value < bounds[0] || value > bounds[1])"
ONE, CONTINUOUS = mlp.GRADIENT["one"], mlp.GRADIENT["continuous"]
# What is wrong: the kernel, the right text, the wrong one, and what sees it.
FAULTS: dict[str, tuple[Kernel, str, str, Callable[[], None]]] = {
    "a layer's bias is forgotten": (mlp.VALUES, "load(weight + K * N + n)", "splat(0.0f)", forwards),
    "the head's bias is forgotten": (mlp.VALUES, "splat(bias[m])", "splat(0.0f)", forwards),
    "the value is another output's": (mlp.VALUES, "value_row(TOWERS - 1) * SAMPLES + s", "s",
                                      shared_forwards),
    "the value is the actor's": (mlp.VALUES, "forward<TOWERS - 1>", "forward<0>", forwards),
    "the last tile is left out": (mlp.VALUES, "begin < share.end; begin", "begin + 8 < share.end; begin", forwards),
    "a tile begins anew": (mlp.DISTRIBUTION, "observation[begin * D + i]", "observation[i]", forwards),
    "ReLU everywhere": (mlp.DISTRIBUTION, "return tanh_(x);", "return select(x > 0.0f, x, 0.0f);", forwards),
    "the last rows of a product": (mlp.DISTRIBUTION, "if (rest & 2)", "if (rest & 32)", forwards),
    "log_std is not bounded": (mlp.PACK, "clamp(parameters[flat_log_std() + d], bounds[0], bounds[1])",
                               "parameters[flat_log_std() + d]", gaussian_forwards),
    "transposed weights": (mlp.PACK, "from[i * O + first + c]", "from[(first + c) * I + i]", forwards),
    "heads are swapped": (mlp.PACK, "(value ? 0 : output)", "(value ? 0 : ACTOR - 1 - output)", forwards),
    "the weights on the way back": (mlp.PACK, "from[(first + c) * O + o]", "from[o]", gradients),
    "the slope of the other activation": (ONE, "fused_multiply_add(-y, y, 1.0f)",
                                          "select(y > 0.0f, splat(1.0f), 0.0f)", gradients),
    "every tile begins a new sum": (ONE, "begin == share.begin", "true", gradients),
    "the minibatch is not looked up": (ONE, "batch.index[begin + i / D]", "(begin + i / D)", gradients),
    "the records are not looked up": (ONE, "batch.index[begin + (s < rows ? s : 0)]",
                                      "(begin + (s < rows ? s : 0))", gradients),
    "advantages are not normalized": (ONE, "* batch.shift[1]", "", gradients),
    "the gradient of the sum": (ONE, "scale = 1.0f / (float)B", "scale = 1.0f", gradients),
    "lanes beyond the last sample count": (ONE, "for (int s = 0; s < rows; s++) total += row[s];",
                                           "for (int s = 0; s < SAMPLES; s++) total += row[s];", gradients),
    "a layer's bias has no gradient": (ONE, "store(bias + n, sum);", "store(bias + n, sum * 0.0f);",
                                       gradients),
    "log_std's gradient is another row": (CONTINUOUS, "(ACTOR + 1 + d) * SAMPLES", "(ACTOR + d) * SAMPLES",
                                          gaussian_gradients),
    "the value loss is the actor's": (CONTINUOUS, "output + value_row(T) * SAMPLES + s", "output + s",
                                      gaussian_gradients),
    "a partition is left out": (mlp.REDUCE, "p < P; p++", "p < P - 1; p++", gradients),
    "a bound passes the gradient": (mlp.REDUCE, BOUND, "if (!own)", check_log_std_bounds),
    "what lies beside a matrix is not zeroed": (mlp.REDUCE, BOUND, BOUND.replace("!own || ", "own && (") + ")",
                                                gaussian_gradients),
    "the chain of squares is broken": (mlp.REDUCE, "fused_multiply_add(g, g, chain)", "g * g", gradients),
    "metrics over the partitions": (mlp.REDUCE, "(float)samples", "(float)P", gradients),
    "a death has a final value": (mlp.FINAL_VALUES, SEARCH, "if (truncated[m])", check_final_values),
    "the search begins anew": (mlp.FINAL_VALUES, "next = found[1];", "next = share.end;", check_final_values),
    "the metrics of the last tile": (mlp.POLICY_METRICS["one"], "begin == share.begin", "true", check_policy_metrics),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(plant: Plant, fault: str) -> None:
    kernel, right, wrong, check = FAULTS[fault]
    plant(kernel, right, wrong)
    with pytest.raises(AssertionError):
        check()


def test_the_checks_pass_without_a_fault() -> None:
    for check in {check for *_, check in FAULTS.values()}:
        check()
