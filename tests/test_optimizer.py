"""The optimizers: what each of them steps and by how much, that they resume, and that a policy learns by either."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import reference
import torch
from torch import Tensor
from training import contents, faulty, small

import envs
from kernels.adam import BETA1, BETA2, EPSILON
from kernels.errors import UserError
from kernels.muon import MOMENTUM
from pipeline import config as configuration
from pipeline import evaluate, provenance, train
from pipeline import optimizer as product
from pipeline.config import PolicyConfig
from pipeline.policy import ActorCritic, FlatParameters, build
from pipeline.ppo import PPO

CPU = torch.device("cpu")
LEARNING_RATE, MAX_GRAD_NORM = 0.02, 5.0


@pytest.fixture(autouse=True)
def _provenance_elsewhere(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path_factory.mktemp("checkout"))


# ---------------------------------------------------------------------------------------------------------------------
# What is stepped
# ---------------------------------------------------------------------------------------------------------------------


def policy_of(hidden: tuple[int, ...], shared: bool, name: str = "pendulum") -> tuple[ActorCritic, FlatParameters]:
    config = PolicyConfig(hidden=hidden, activation="tanh", shared=shared, log_std_init=0.0)
    return build(envs.spec(name), config, 3, CPU)


@pytest.mark.parametrize(
    ("hidden", "shared", "wanted"),
    [
        ((9, 7), False, ["actor.2.weight", "critic.2.weight"]),
        ((9, 7), True, ["trunk.2.weight"]),
        ((9, 7, 7, 8), True, ["trunk.2.weight", "trunk.4.weight", "trunk.6.weight"]),
        ((9,), False, []),
        ((9,), True, []),
    ],
)
def test_hidden_matrices(hidden: tuple[int, ...], shared: bool, wanted: list[str]) -> None:
    policy, _ = policy_of(hidden, shared)
    found = policy.hidden_matrices()
    names = {id(parameter): name for name, parameter in policy.named_parameters()}
    assert [names[id(matrix)] for matrix in found] == wanted


def matrices_in_float64(policy: ActorCritic, flat: FlatParameters) -> dict[int, tuple[int, int]]:
    """Where the matrices between hidden layers begin, and their (inputs, outputs)."""
    return {flat.places[matrix]: (matrix.shape[1], matrix.shape[0]) for matrix in policy.hidden_matrices()}


def check_steps(module: ModuleType = product, hidden: tuple[int, ...] = (9, 7, 7, 7), shared: bool = False) -> None:
    """Six steps, in iterations of two, beside the references in float64."""
    policy, flat = policy_of(hidden, shared)
    optimizer = module.Muon(flat, policy.hidden_matrices(), MAX_GRAD_NORM, 2)
    wanted = flat.parameters.double().numpy()
    first, second, momentum = (np.zeros_like(wanted) for _ in range(3))
    places = matrices_in_float64(policy, flat)
    own = np.zeros(len(wanted), dtype=bool)
    for begin, (inputs, outputs) in places.items():
        own[begin : begin + inputs * outputs] = True
    generator = torch.Generator().manual_seed(1)
    for count in range(1, 7):
        if count % 2:
            learning_rate = LEARNING_RATE / count
            optimizer.begin(learning_rate)
        flat.gradients.copy_(torch.randn(len(wanted), generator=generator))
        optimizer.step(1 - count % 2)
        gradient = flat.gradients.double().numpy()
        norm, scale = reference.global_norm(gradient, MAX_GRAD_NORM)
        assert optimizer.norms[1 - count % 2].item() == pytest.approx(norm.item(), rel=1e-6)
        schedule = np.array([learning_rate, 1 - BETA1**count, 1 - BETA2**count])
        moved, first, second = reference.adam(wanted, gradient, scale, first, second, schedule, BETA1, BETA2, EPSILON)
        by_muon = wanted
        for begin, shape in places.items():
            by_muon, momentum = reference.muon(
                by_muon, gradient, scale, momentum, np.array([begin]), schedule, *shape, MOMENTUM
            )
        wanted = np.where(own, by_muon, moved)
    difference = np.abs(flat.parameters.double().numpy() - wanted)
    assert difference.max() < 2e-6, f"farthest at {difference.argmax()}, {difference.max()}"


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("hidden", [(64, 64), (9, 7, 7, 7), (5, 31, 8)])
def test_steps_of_muon(hidden: tuple[int, ...], shared: bool) -> None:
    check_steps(hidden=hidden, shared=shared)


FAULTS = {
    "the pieces overlap the matrices": ("end = begin + matrix.numel()", "end = begin"),
    "what follows the last matrix stands still": ("self._others.append(slice(end, None))", ""),
    "one shape only": ("in self._offsets.items():", "in list(self._offsets.items())[:1]:"),
    "inputs and outputs exchanged": ("outputs, inputs = matrix.shape", "inputs, outputs = matrix.shape"),
    "the schedule of the first step": ("self._move(self._schedules[number])", "self._move(self._schedules[0])"),
    "not clipped": (
        "self._scale, self._max_grad_norm)",
        "self._scale, 1e9)",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault_in_the_steps(fault: str) -> None:
    with pytest.raises(AssertionError):
        check_steps(faulty(product, FAULTS[fault]))


def test_a_state_goes_on_as_it_was_left() -> None:
    """From a copy of parameters and state the next steps are the same to the bit."""
    policy, flat = policy_of((9, 7), False)
    other, other_flat = policy_of((9, 7), False)
    one = product.Muon(flat, policy.hidden_matrices(), MAX_GRAD_NORM)
    two = product.Muon(other_flat, other.hidden_matrices(), MAX_GRAD_NORM)
    gradients = torch.randn(6, len(flat.parameters), generator=torch.Generator().manual_seed(2))

    def go(optimizer: product.Adam, buffers: FlatParameters, rows: Tensor) -> None:
        for gradient in rows:
            optimizer.begin(LEARNING_RATE)
            buffers.gradients.copy_(gradient)
            optimizer.step()

    go(one, flat, gradients[:3])
    other_flat.parameters.copy_(flat.parameters)
    two.load_state({name: tensor.clone() for name, tensor in one.state().items()})
    go(one, flat, gradients[3:])
    go(two, other_flat, gradients[3:])
    assert torch.equal(flat.parameters, other_flat.parameters)
    for name, tensor in one.state().items():
        assert torch.equal(tensor, two.state()[name]), name


# ---------------------------------------------------------------------------------------------------------------------
# Through the product
# ---------------------------------------------------------------------------------------------------------------------

PATHS = pytest.mark.parametrize("fused", ["true", "false"])


def test_a_single_hidden_layer_is_refused() -> None:
    with pytest.raises(UserError, match=r"^ppo.optimizer: wanted adam, for a single hidden layer; got 'muon'. Give"):
        configuration.load(["ppo.optimizer=muon", "policy.hidden=[64]"])
    assert configuration.load(["ppo.optimizer=adam", "policy.hidden=[64]"]).ppo.optimizer == "adam"


def test_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(UserError, match=r"^ppo.optimizer: wanted one of adam, muon; got 'moun'. Nearest: muon$"):
        configuration.load(["ppo.optimizer=moun"])


def interrupted(limit: int) -> Callable[..., dict[str, float]]:
    """PPO.iterate, with Ctrl-C pressed in its place once `limit` iterations are done."""
    iterate = PPO.iterate

    def stopping(ppo: PPO, ahead: bool = False) -> dict[str, float]:
        if ppo.iteration == limit:
            raise KeyboardInterrupt
        return iterate(ppo)

    return stopping


def check_resume(fused: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(out: Path) -> None:
        train.run(small(out, "ppo.optimizer=muon", f"device.fused={fused}"))

    monkeypatch.setattr(train, "PARTIAL_SECONDS", -1.0)  # one after each iteration
    run(folder / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(PPO, "iterate", interrupted(3))
        with pytest.raises(SystemExit):
            run(folder / "stopped")
    assert [*(folder / "stopped").glob("partial-*")]
    run(folder / "stopped")
    assert contents(folder / "stopped") == contents(folder / "whole")
    manifest = json.loads((folder / "whole" / "checkpoint.json").read_text())
    assert manifest["path"] == ("fused" if fused == "true" else "general")
    assert manifest["config"]["ppo"]["optimizer"] == "muon"


@PATHS
def test_resumed_is_as_uninterrupted(fused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_resume(fused, tmp_path, monkeypatch)


def test_planted_momentum_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = product.Adam.state
    monkeypatch.setattr(product.Muon, "state", lambda self: {**state(self), "first_moment": torch.zeros(1)})
    with pytest.raises(AssertionError):
        check_resume("true", tmp_path, monkeypatch)


def test_threads_change_no_bit(tmp_path: Path) -> None:
    for threads in (1, 2, 3):
        train.run(
            small(tmp_path / str(threads), "ppo.optimizer=muon", "policy.hidden=[64,64]", f"device.threads={threads}")
        )
    assert contents(tmp_path / "1") == contents(tmp_path / "2") == contents(tmp_path / "3")


def test_adam_and_muon_differ_in_the_hidden_matrices_first(tmp_path: Path) -> None:
    """From the same policy and the same rollout, one step: only what Muon steps differs."""
    one = ("policy.hidden=[9,7]", "ppo.total_steps=32", "ppo.update_epochs=1", "ppo.num_minibatches=1")
    found = {}
    for name in ("adam", "muon"):
        train.run(small(tmp_path / name, *one, f"ppo.optimizer={name}"))
        found[name] = train.checkpoint.load(tmp_path / name).tensors["parameters"]
    policy, flat = policy_of((9, 7), False, "cartpole")
    own = torch.zeros(len(flat.parameters), dtype=torch.bool)
    for begin, (inputs, outputs) in matrices_in_float64(policy, flat).items():
        own[begin : begin + inputs * outputs] = True
    differs = found["adam"] != found["muon"]
    assert differs[own].all()
    assert not differs[~own].any()


@pytest.mark.parametrize(("fused", "seed"), [("true", 1), ("true", 2), ("true", 3), ("false", 1)])
@pytest.mark.parametrize("name", ["adam", "muon"])
def test_cartpole_is_learned(name: str, fused: str, seed: int, tmp_path: Path) -> None:
    config = configuration.load(
        [
            f"seed={seed}", f"ppo.optimizer={name}", f"device.fused={fused}", "device=cpu", "device.threads=1",
            "tracking.enabled=false", "evaluate.split=selection", "evaluate.episodes=50", "ppo.total_steps=57344",
            "ppo.update_epochs=8", "ppo.gamma=0.98", "ppo.gae_lambda=0.9",
        ]
    )  # fmt: skip
    train.run(dataclasses.replace(config, out=str(tmp_path / "train")))
    evaluate.run(dataclasses.replace(config, checkpoint=str(tmp_path / "train"), out=str(tmp_path / "evaluate")))
    metrics = json.loads((tmp_path / "evaluate" / "metrics.json").read_text())
    assert metrics["initial_return_mean"] < 100
    assert metrics["return_mean"] >= 475
