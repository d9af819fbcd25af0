"""The policy: where its parameters lie, what it computes, and how it begins."""

import math
from types import ModuleType

import numpy as np
import pytest
import reference
import torch
from torch import Tensor, nn
from training import NAMES, Pair, faulty

import envs
from pipeline import policy as product
from pipeline.config import PolicyConfig

CPU = torch.device("cpu")
HIDDEN = (5, 35)  # sizes that fill no cache line


def build(
    module: ModuleType = product,
    name: str = "cartpole",
    seed: int = 3,
    activation: str = "tanh",
    log_std: float = 0.0,
    shared: bool = False,
) -> tuple[product.ActorCritic, product.FlatParameters]:
    config = PolicyConfig(hidden=HIDDEN, activation=activation, shared=shared, log_std_init=log_std)
    policy, flat = module.build(envs.spec(name), config, seed, CPU)
    return policy, flat


def linear(tower: nn.Sequential) -> list[nn.Linear]:
    return [layer for layer in tower if isinstance(layer, nn.Linear)]


def towers(policy: product.ActorCritic) -> list[list[nn.Linear]]:
    """From the observation to the actor's outputs, and to the value; a shared trunk's layers are in both."""
    return [linear(policy.trunk) + linear(tower) for tower in (policy.actor, policy.critic)]


def in_order(policy: product.ActorCritic) -> list[nn.Linear]:
    """Every layer once: a trunk's, the actor's, the critic's."""
    return [layer for tower in (policy.trunk, policy.actor, policy.critic) for layer in linear(tower)]


def check_layout(module: ModuleType, name: str, shared: bool = False) -> None:
    policy, flat = build(module, name, shared=shared)
    assert len(in_order(policy)) == (4 if shared else 6)
    assert policy.layers() == in_order(policy)
    begins = [flat.places[layer.weight] for layer in policy.layers()]
    assert begins == sorted(begins)
    for buffer, pick in ((flat.parameters, lambda p: p.data), (flat.gradients, lambda p: p.grad)):
        assert buffer.data_ptr() % 64 == 0
        buffer.zero_()
        unclaimed = torch.ones_like(buffer)
        size = 0
        groups = [[layer.weight, layer.bias] for layer in in_order(policy)]
        for group in groups if policy.log_std is None else [*groups, [policy.log_std]]:
            begin = (pick(group[0]).data_ptr() - buffer.data_ptr()) // 4
            assert begin % 16 == 0
            assert begin == flat.places[group[0]]
            for number, parameter in enumerate(group):
                rows = (
                    pick(parameter).t() if parameter.dim() == 2 else pick(parameter)
                )  # (inputs, outputs): input-major
                assert (rows.data_ptr() - buffer.data_ptr()) // 4 == begin
                assert rows.is_contiguous()
                rows.copy_(torch.arange(rows.numel()).view(rows.shape) + 7 * number + 1)
                piece = buffer[begin : begin + rows.numel()]
                assert torch.equal(piece, torch.arange(rows.numel()) + 7.0 * number + 1)
                unclaimed[begin : begin + rows.numel()] -= 1
                begin, size = begin + rows.numel(), size + rows.numel()  # the bias follows its weights at once
        assert set(unclaimed.tolist()) <= {0.0, 1.0}  # no element belongs to two
        assert torch.equal(buffer * unclaimed, torch.zeros_like(buffer))  # zeros between
        assert size == sum(p.numel() for p in policy.parameters()) == int((1 - unclaimed).sum())


@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
@pytest.mark.parametrize("name", NAMES)
def test_layers_lie_input_major_on_cache_lines(name: str, shared: bool) -> None:
    check_layout(product, name, shared)


@pytest.mark.parametrize(
    "pair",
    [
        ("return -(-size // CACHE_LINE) * CACHE_LINE", "return size"),
        ("places.append((parameter, size, linear and not number))", "places.append((parameter, size, False))"),
        ("if not (linear and number):", "if True:"),
        ("parameter.data, parameter.grad = own, _view(self.gradients, begin, parameter, transposed)",
         "parameter.data, parameter.grad = own, torch.zeros_like(own)"),
        ("parameter.data, parameter.grad = own,", "parameter.data, parameter.grad = own.clone(),"),
        ("{parameter: begin for", "{parameter: begin + 16 for"),
        ("(_hidden, _nothing) if config.shared else (_nothing, _hidden)", "(_nothing, _hidden)"),
    ],
    ids=["no alignment", "output-major", "bias apart", "gradients elsewhere", "parameters elsewhere", "other places",
         "never shared"],
)  # fmt: skip
def test_planted_layout(pair: Pair) -> None:
    with pytest.raises((AssertionError, ValueError)):  # a kernel refuses output-major weights by itself
        check_layout(faulty(product, pair), "pendulum", shared=True)


@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_gather_in_the_flat_buffer(name: str, shared: bool) -> None:
    policy, flat = build(name=name, shared=shared)
    observation = torch.randn(9, policy.layers()[0].in_features)
    (policy.distribution(observation).sum() + policy.value(observation).sum()).backward()
    for parameter in policy.parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0
        assert (
            flat.gradients.data_ptr() <= parameter.grad.data_ptr() < flat.gradients.data_ptr() + 4 * len(flat.gradients)
        )
    together = torch.cat([parameter.grad.flatten() for parameter in policy.parameters()])  # type: ignore[union-attr]
    torch.testing.assert_close(flat.gradients.norm(), together.norm())


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_is_its_flat_buffer(name: str) -> None:
    one, one_flat = build(name=name, seed=1)
    other, other_flat = build(name=name, seed=2, log_std=-0.3)
    observation = torch.randn(9, one.layers()[0].in_features)
    assert not torch.equal(one.distribution(observation), other.distribution(observation))
    other_flat.parameters.copy_(one_flat.parameters)
    for (key, got), (_, wanted) in zip(other.named_parameters(), one.named_parameters(), strict=True):
        assert torch.equal(got, wanted), key
    assert torch.equal(one.distribution(observation), other.distribution(observation))
    assert torch.equal(one.value(observation), other.value(observation))


def check_forward(module: ModuleType, name: str, activation: str, shared: bool = False) -> None:
    """Against the plain formula in float64, read from the flat buffer as a kernel would."""
    policy, flat = build(module, name, activation=activation, log_std=-0.7, shared=shared)
    flat.parameters.add_(0.1 * torch.randn(len(flat.parameters), generator=torch.Generator().manual_seed(1)))
    observation = torch.randn(33, in_order(policy)[0].in_features, generator=torch.Generator().manual_seed(2))
    buffer = flat.parameters.double().numpy()
    apply = np.tanh if activation == "tanh" else lambda x: np.maximum(x, 0)

    def mlp(layers: list[nn.Linear]) -> Tensor:
        hidden = observation.double().numpy()
        for layer in layers:
            begin = (layer.weight.data_ptr() - flat.parameters.data_ptr()) // 4
            weights = layer.in_features * layer.out_features
            matrix = buffer[begin : begin + weights].reshape(layer.in_features, layer.out_features)
            hidden = hidden @ matrix + buffer[begin + weights : begin + weights + layer.out_features]
            hidden = hidden if layer is layers[-1] else apply(hidden)
        return torch.from_numpy(hidden)

    actor, critic = (mlp(layers) for layers in towers(policy))
    if policy.log_std is not None:
        actor = torch.cat([actor, policy.log_std.detach().double().expand(33, -1)], dim=1)
    torch.testing.assert_close(policy.distribution(observation).detach().double(), actor, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(policy.value(observation).detach().double(), critic[:, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("name", NAMES)
def test_forward_equals_the_formula(name: str, activation: str, shared: bool) -> None:
    check_forward(product, name, activation, shared)


@pytest.mark.parametrize("shared", [False, True], ids=["apart", "shared"])
@pytest.mark.parametrize(
    "pair",
    [
        ("ACTIVATIONS[config.activation]()]", "nn.Tanh()]"),
        ("torch.cat([output, self.log_std.clamp", "torch.cat([output, (2 * self.log_std).clamp"),
        ("output: Tensor = self.critic(", "output: Tensor = self.actor("),
    ],
    ids=["activation ignored", "log std scaled", "towers mixed up"],
)  # fmt: skip
def test_planted_forward(pair: Pair, shared: bool) -> None:
    with pytest.raises(AssertionError):
        check_forward(faulty(product, pair), "pendulum", "relu", shared)


def check_initialization(module: ModuleType, name: str, shared: bool = False) -> None:
    policy, _ = build(module, name, seed=11, shared=shared)
    actor, critic = (layers[-1] for layers in towers(policy))
    for number, layer in enumerate(in_order(policy)):
        gain = 0.01 if layer is actor else 1.0 if layer is critic else math.sqrt(2.0)
        matrix = layer.weight.detach().double().t()  # (inputs, outputs)
        gram = matrix @ matrix.t() if matrix.shape[0] < matrix.shape[1] else matrix.t() @ matrix
        torch.testing.assert_close(
            gram, gain**2 * torch.eye(len(gram), dtype=torch.float64), rtol=1e-5, atol=1e-5 * gain**2
        )
        wanted = reference.orthogonal(layer.in_features, layer.out_features, gain, number, 11)
        torch.testing.assert_close(matrix.numpy(), wanted, rtol=1e-4, atol=1e-5 * gain)
        assert torch.equal(layer.bias, torch.zeros_like(layer.bias))
    # Near uniform: within a hundredth of equal probabilities, or means of nearly zero.
    observation = 2 * torch.randn(256, policy.layers()[0].in_features, generator=torch.Generator().manual_seed(4))
    output = policy.distribution(observation).detach()
    if policy.log_std is None:
        assert (output.softmax(-1) - 1 / output.shape[1]).abs().max() < 0.02
    else:
        assert output[:, : len(policy.log_std)].abs().max() < 0.05


@pytest.mark.parametrize("name", NAMES)
def test_initialization(name: str) -> None:
    check_initialization(product, name)


@pytest.mark.parametrize("name", NAMES)
def test_initialization_of_a_shared_trunk(name: str) -> None:
    check_initialization(product, name, shared=True)


@pytest.mark.parametrize(
    "pair",
    [
        ("policy.actor[-1]: 0.01", "policy.actor[-1]: 1.0"),
        ("layer, math.sqrt(2.0))", "layer, 1.0)"),
        ("policy.critic[-1]: 1.0", "policy.critic[-1]: 0.01"),
        ("        layer.bias.data.zero_()\n", ""),
        ("number, run_seed)", "0, run_seed)"),
        ("    initialize(policy, run_seed)\n", ""),
    ],
    ids=["policy head", "hidden gain", "value head", "biases", "layers alike", "torch's own"],
)  # fmt: skip
def test_planted_initialization(pair: Pair) -> None:
    for shared in (False, True):
        with pytest.raises(AssertionError):
            check_initialization(faulty(product, pair), "cartpole", shared)


def check_seeds(module: ModuleType) -> None:
    first, again, other = (build(module, seed=seed)[1].parameters for seed in (1, 1, 2))
    assert torch.equal(first.view(torch.int32), again.view(torch.int32))
    assert not torch.equal(first, other)
    one, two = (build(module, seed=seed)[0] for seed in (1, 2))
    for layers, others in zip(towers(one), towers(two), strict=True):
        for layer, other_layer in zip(layers, others, strict=True):
            assert not torch.equal(layer.weight, other_layer.weight)


def test_the_run_seed_moves_every_weight() -> None:
    check_seeds(product)


@pytest.mark.parametrize(
    "pair",
    [
        ("number, run_seed)", "number, 0)"),
        ("    initialize(policy, run_seed)\n", "    initialize(policy, int(torch.randint(99999, ())))\n"),
    ],
    ids=["seed ignored", "unseeded"],
)
def test_planted_seeds(pair: Pair) -> None:
    with pytest.raises(AssertionError):
        check_seeds(faulty(product, pair))


def check_clamp(module: ModuleType) -> None:
    policy, _ = build(module, "pendulum")
    assert policy.log_std is not None
    observation = torch.zeros(2, 3)
    for given, wanted, gradient in ((10.0, 2.0, 0.0), (-10.0, -5.0, 0.0), (1.5, 1.5, 2.0)):
        policy.log_std.data.fill_(given)
        assert policy.log_std.grad is not None
        policy.log_std.grad.zero_()
        output = policy.distribution(observation)
        assert output[:, 1:].tolist() == [[wanted]] * 2
        output[:, 1:].sum().backward()
        assert policy.log_std.grad.tolist() == [gradient]


def test_log_std_is_bounded() -> None:
    check_clamp(product)


def test_planted_unbounded_log_std() -> None:
    with pytest.raises(AssertionError):
        check_clamp(faulty(product, ("self.log_std.clamp(*LOG_STD_RANGE)", "self.log_std")))


def test_mode_is_the_most_likely_action() -> None:
    action = torch.empty(3, dtype=torch.int32)
    product.mode(torch.tensor([[0.0, 2.0, 1.0], [3.0, 3.0, 0.0], [-1.0, -2.0, -0.5]]), action)
    assert action.tolist() == [1, 0, 2]  # the first of equals
    mean = torch.empty(2, 2)
    product.mode(torch.tensor([[0.5, -3.0, 1.0, 1.0], [9.0, 1.0, 0.0, 0.0]]), mean)
    assert mean.tolist() == [[0.5, -3.0], [9.0, 1.0]]  # not clipped, not sampled


@pytest.mark.parametrize("name", NAMES)
def test_sample_draws_by_step_and_seed(name: str) -> None:
    spec = envs.spec(name)
    policy, _ = build(name=name)
    parameters = policy.distribution(torch.randn(64, spec.observation_size)).detach()

    def draw(step: int, seed: int) -> Tensor:
        action = product.empty_action(spec, (64,), CPU)
        log_prob, entropy = torch.empty(64), torch.empty(64)
        product.sample(parameters, action, log_prob, entropy, step, seed)
        return action.clone()

    first = draw(5, 1)
    assert torch.equal(first, draw(5, 1))
    assert not torch.equal(first, draw(6, 1))
    assert not torch.equal(first, draw(5, 2))
    if first.dtype == torch.int32:
        assert np.array_equal(first.numpy(), reference.sample_categorical(parameters.numpy(), 5, 1)[0])
    else:
        wanted = reference.sample_gaussian(parameters.double().numpy(), 5, 1)
        torch.testing.assert_close(first.double().numpy(), wanted, rtol=1e-4, atol=1e-4)
