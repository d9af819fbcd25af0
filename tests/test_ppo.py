"""One iteration: replayed in float64, worked by hand at the ends of episodes, stopped at numbers that are none.

On both paths: `general`, torch's autograd; `fused`, whose launches are recorded as programs, and which is looked into
as `eager`, where they run one by one.
"""

import copy
import ctypes
import dataclasses
import gc
import math
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import reference
import torch
from torch import Tensor, nn
from training import NAMES, faulty, plant_in_kernel

import envs
from envs.spec import Discrete, EnvSpec
from kernels import adam as adam_kernel
from kernels import compiler, mlp
from kernels.advantage_shift import ADVANTAGE_SHIFT
from kernels.errors import UserError
from kernels.gae import GAE
from kernels.launcher import Kernel, Program
from kernels.ppo_loss import METRICS
from kernels.summary import ROLLOUT_SUMS, SUMMARY
from pipeline import fused as fused_path
from pipeline import general as general_path
from pipeline import mlp as networks
from pipeline import optimizer as optimizers
from pipeline import ppo as product
from pipeline import rollout as rollouts
from pipeline.config import PolicyConfig, PPOConfig
from pipeline.policy import ActorCritic, FlatParameters, build, sample
from pipeline.profile import PHASES, Clock

CPU = torch.device("cpu")
CONFIG = PPOConfig(
    total_steps=60, num_envs=4, num_steps=5, num_minibatches=2, update_epochs=3, optimizer="adam", learning_rate=0.03,
    anneal_lr=True, gamma=0.9, gae_lambda=0.8, clip_coef=0.02, norm_adv=True, ent_coef=0.03, vf_coef=0.7,
    max_grad_norm=0.2,
)  # fmt: skip
POLICY = PolicyConfig(hidden=(9, 8), activation="tanh", shared=False, log_std_init=0.7)
RUN_SEED = 6
PATHS = ("general", "eager")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    compiler.set_threads(1)


@dataclasses.dataclass(frozen=True)
class Parts:
    """The modules that a training is made of; a test may put a faulty one in the place of the product's."""

    ppo: ModuleType = product
    general: ModuleType = general_path
    fused: ModuleType = fused_path
    optimizer: ModuleType = optimizers


@dataclasses.dataclass
class Training:
    ppo: product.PPO
    policy: ActorCritic
    flat: FlatParameters
    optimizer: optimizers.Adam


def begin(
    path: str,
    name: str = "cartpole",
    config: PPOConfig = CONFIG,
    *,
    parts: Parts = Parts(),
    run_seed: int = RUN_SEED,
    policy: PolicyConfig = POLICY,
    spec: EnvSpec | None = None,
    **methods: Callable[..., Any],
) -> Training:
    """A training on short episodes; of the first four of CartPole one dies at once, one dies on its last step.

    Args:
        path: general, fused, or eager: fused without programs.
        methods: in the place of the path's own; the first argument is the path's class, the second the object.
    """
    spec = spec or envs.spec(name, 3)
    actor_critic, flat = build(spec, policy, run_seed, CPU)
    env = envs.NativeVectorEnv(spec, config.num_envs, run_seed, CPU)
    optimizer = parts.optimizer.Adam(flat, config.max_grad_norm, config.update_epochs * config.num_minibatches)
    own = parts.general.General if path == "general" else parts.fused.Fused
    bound = {key: lambda self, *rest, method=method: method(own, self, *rest) for key, method in methods.items()}
    runner = type(own.__name__, (own,), bound | ({"prepared": lambda self, work: work} if path == "eager" else {}))
    network = actor_critic if path == "general" else networks.shapes(actor_critic, flat, spec, policy)
    run = runner(network, flat, env, config, run_seed)
    ppo = parts.ppo.PPO(config, env, run, optimizer, run_seed, Clock(CPU))
    if name == "cartpole" and spec.name == name and config.num_envs == 4:
        state = env.state()
        state["state"][2:, :2] = torch.tensor([[0.2, 0.2], [3.0, 3.0]])  # falling at 3 rad/s, all but beyond the limit
        state["episode_length"][1] = 2
        ppo.rollout.observations[-1].copy_(state["state"].t())
    return Training(ppo, actor_critic, flat, optimizer)


# A fault: for each place of it the module of `Parts` or the kernel, what stands there, and what is put in its place.
Fault = tuple[tuple[str | Kernel, str, str], ...]


def plant(fault: Fault, monkeypatch: pytest.MonkeyPatch, folder: Path) -> Parts:
    """The parts with the fault put in; into kernels until the test ends."""
    pairs: dict[str, list[tuple[str, str]]] = {}
    for place, right, wrong in fault:
        if isinstance(place, Kernel):
            plant_in_kernel(monkeypatch, folder, place, right, wrong)
        else:
            pairs.setdefault(place, []).append((right, wrong))
    return dataclasses.replace(Parts(), **{key: faulty(getattr(Parts(), key), *each) for key, each in pairs.items()})


def reached_by(fault: Fault) -> tuple[str, ...]:
    """The paths that hold a fault's text."""
    alone = {
        path
        for place, _, _ in fault
        for path, places in (("general", ("general",)), ("eager", ("fused", *MLP_KERNELS)))
        if place in places
    }
    return tuple(path for path in PATHS if not alone or path in alone)


MLP_KERNELS = (
    mlp.FINAL_VALUES, *mlp.ROLLOUT.values(), *mlp.GRADIENT.values(), *mlp.POLICY_METRICS.values(), mlp.REDUCE,
)  # fmt: skip


def on_each_path(faults: dict[str, Fault]) -> Any:
    """Parametrizes a test over faults, each on every path that holds its text."""
    return pytest.mark.parametrize(
        ("fault", "path"), [(fault, path) for fault, each in faults.items() for path in reached_by(each)]
    )


# ---------------------------------------------------------------------------------------------------------------------
# Whole iterations in float64, by torch's autograd and optimizer
# ---------------------------------------------------------------------------------------------------------------------


def log_prob_and_entropy(model: ActorCritic, observation: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    output = model.distribution(observation)
    if action.dtype == torch.int32:
        categorical = torch.distributions.Categorical(logits=output)
        return categorical.log_prob(action.long()), categorical.entropy()
    mean, log_std = output.chunk(2, dim=-1)
    normal = torch.distributions.Normal(mean, log_std.exp())
    return normal.log_prob(action.double()).sum(-1), normal.entropy().sum(-1)


def replay(
    ppo: product.PPO, model: ActorCritic, adam: torch.optim.Adam, learning_rate: float
) -> tuple[list[dict[str, Tensor]], dict[str, float]]:
    """What an iteration must do with its rollout: each minibatch's gradient, before clipping, and the metrics."""
    rollout, config = ppo.rollout, ppo.config
    observations, actions = rollout.observations.double(), rollout.actions.flatten(0, 1)
    seen = observations[:-1].flatten(0, 1)
    iteration = ppo.iteration - 1
    with torch.no_grad():
        old, _ = log_prob_and_entropy(model, seen, actions)
        values = model.value(observations.flatten(0, 1)).view(config.num_steps + 1, config.num_envs)
        final = model.value(rollout.final_observations.double().flatten(0, 1)).view_as(values[1:])
    flags = (rollout.terminated.numpy(), rollout.truncated.numpy())
    arrays = (rollout.rewards.double().numpy(), values.numpy(), final.numpy(), *flags)
    advantages, returns = (torch.from_numpy(a) for a in reference.gae(*arrays, config.gamma, config.gae_lambda))
    torch.testing.assert_close(rollout.advantages.double(), advantages, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(rollout.returns.double(), returns, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(rollout.log_probs.flatten().double(), old, rtol=1e-4, atol=1e-5)

    def fractions(index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        log_prob, entropy = log_prob_and_entropy(model, seen[index], actions[index])
        ratio = (log_prob - old[index]).exp()
        return ratio, ((ratio - 1).abs() > config.clip_coef).double().mean(), entropy

    gradients, rows, norms = [], [], []
    for group in adam.param_groups:
        group["lr"] = learning_rate
    for epoch in range(config.update_epochs):
        order = torch.tensor(reference.shuffle(len(seen), iteration, epoch, ppo.run_seed))
        for index in order.split(len(seen) // config.num_minibatches):
            advantage, target = advantages.flatten()[index], returns.flatten()[index]
            if config.norm_adv and len(index) > 1:
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            ratio, clipped, entropy = fractions(index)
            bounded = ratio.clamp(1 - config.clip_coef, 1 + config.clip_coef)
            policy_loss = -torch.minimum(ratio * advantage, bounded * advantage).mean()
            value_loss = 0.5 * (model.value(seen[index]) - target).square().mean()
            loss = policy_loss - config.ent_coef * entropy.mean() + config.vf_coef * value_loss
            adam.zero_grad()
            loss.backward()
            gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm))
            adam.step()
            kl = ((ratio - 1) - ratio.log()).mean()
            rows.append(torch.stack([policy_loss, value_loss, entropy.mean(), kl, clipped]).detach())
    with torch.no_grad():
        after = fractions(index)[1]
    errors = returns - values[:-1]
    ended = (rollout.terminated | rollout.truncated).bool()
    metrics = dict(zip(METRICS, torch.stack(rows).mean(0).tolist(), strict=True)) | {
        "clip_fraction_after": float(after),
        "explained_variance": float(1 - errors.var(correction=0) / returns.var(correction=0)),
        "grad_norm": float(torch.stack(norms).mean()),
        "learning_rate": learning_rate,
        "episodes": float(ended.sum()),
        "episode_return_mean": float(rollout.episode_returns[ended].double().mean()),
        "episode_length_mean": float(rollout.episode_lengths[ended].double().mean()),
    }
    return gradients, metrics


def check_replay(
    path: str, name: str = "cartpole", config: PPOConfig = CONFIG, parts: Parts = Parts(), policy: PolicyConfig = POLICY
) -> list[dict[str, float]]:
    """Three iterations (the last two start from a policy that has learned), and the same in float64, side by side."""
    training = begin(path, name, config, parts=parts, policy=policy)
    ppo, model = training.ppo, copy.deepcopy(training.policy).double()
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.999), eps=1e-5)
    found: list[dict[str, Tensor]] = []
    step = training.optimizer.step_clipped

    def spy(number: int) -> None:
        found.append({name: p.grad.clone() for name, p in training.policy.named_parameters() if p.grad is not None})
        step(number)

    training.optimizer.step_clipped = spy  # type: ignore[method-assign]
    collected = False
    told = []
    for iteration in range(ppo.iterations):
        found.clear()
        metrics = ppo.iterate()
        told.append(metrics)
        rollout = ppo.rollout
        collected |= bool((rollout.truncated > rollout.terminated).any() and rollout.truncated[-1].any())
        learning_rate = config.learning_rate * (1 - iteration / ppo.iterations)
        gradients, wanted = replay(ppo, model, adam, learning_rate if config.anneal_lr else config.learning_rate)
        assert len(found) == len(gradients) == config.update_epochs * config.num_minibatches
        for number, (got, want) in enumerate(zip(found, gradients, strict=True)):
            assert got.keys() == want.keys()
            scale = max(float(gradient.abs().max()) for gradient in want.values())
            for key in want:
                error = (got[key].double() - want[key]).abs().max()
                assert error < 2e-4 * scale + 2e-6, (iteration, number, key, float(error), scale)
        assert metrics.keys() == wanted.keys()
        for key, value in wanted.items():
            assert metrics[key] == pytest.approx(value, rel=1e-3, abs=1e-5), (iteration, key)
        for (key, parameter), (_, right) in zip(
            training.policy.named_parameters(), model.named_parameters(), strict=True
        ):
            error = (parameter.double() - right).abs().max()
            assert error < 1e-5, (iteration, key, float(error))
    assert collected
    return told


CASES = {
    "normalized": {},
    "as they are": {"norm_adv": False},
    "one minibatch": {"num_minibatches": 1},
    "minibatches of one": {"num_minibatches": 20, "update_epochs": 1, "learning_rate": 0.003},
    "constant rate": {"anneal_lr": False, "max_grad_norm": 1e9, "ent_coef": 0.0},
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("case", CASES)
# Breakout pays nothing in so few steps: its advantages are differences of values alone, and normalizing them makes
# rounding as large as they are.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "breakout"])
def test_iterations_equal_their_replay(name: str, case: str, path: str) -> None:
    told = check_replay(path, name, dataclasses.replace(CONFIG, **CASES[case]))  # type: ignore[arg-type]
    if case == "normalized":
        assert any(metrics["clip_fraction"] > 0 for metrics in told)  # the clip was at work
        assert any(metrics["clip_fraction_after"] > 0 for metrics in told)  # and did not keep the policy within it
        assert any(metrics["grad_norm"] > CONFIG.max_grad_norm for metrics in told)


# Other networks, on an environment of discrete and one of continuous actions.
NETWORKS = {
    "shared": ("cartpole", {"shared": True}),
    "ReLU, one layer": ("pendulum", {"activation": "relu", "hidden": (9,)}),
    "shared, ReLU, three layers": ("pendulum", {"shared": True, "activation": "relu", "hidden": (8, 17, 9)}),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("network", NETWORKS)
def test_other_networks_equal_their_replay(network: str, path: str) -> None:
    name, changes = NETWORKS[network]
    check_replay(path, name, policy=dataclasses.replace(POLICY, **changes))


def test_the_replay_meets_every_end() -> None:
    ppo = begin("general").ppo
    ppo.collect()
    pairs = torch.stack([ppo.rollout.terminated, ppo.rollout.truncated], -1).flatten(0, 1).unique(dim=0).tolist()
    assert pairs == [[0, 0], [0, 1], [1, 0], [1, 1]]


@pytest.mark.parametrize("name", NAMES)
def test_recorded_programs_are_the_launches_one_by_one(name: str) -> None:
    for case in CASES.values():
        config = dataclasses.replace(CONFIG, **case)  # type: ignore[arg-type]
        one, other = begin("eager", name, config), begin("fused", name, config)
        while not one.ppo.finished:
            assert one.ppo.iterate() == other.ppo.iterate()
            assert torch.equal(one.flat.parameters, other.flat.parameters)
        for key, tensor in one.ppo.state().items():
            assert torch.equal(tensor, other.ppo.state()[key]), key


@pytest.mark.parametrize("name", NAMES)
def test_both_paths_learn_alike(name: str) -> None:
    """One seed, two paths: the same weights, episodes, draws and order of samples.

    The network's sums run in another order, which moves an output by some units in the last place. No draw lies so
    near an edge that it notices within five steps, so the first gradients are those of the same samples, and differ by
    rounding alone; what is learned from them, too.
    """
    first: dict[str, Tensor] = {}
    trainings = {path: begin(path, name) for path in PATHS}
    metrics = {}
    for path, training in trainings.items():
        step = training.optimizer.step_clipped

        def spy(number: int, path: str = path, training: Training = training, step: Any = step) -> None:
            first.setdefault(path, training.flat.gradients.clone())
            step(number)

        training.optimizer.step_clipped = spy  # type: ignore[method-assign]
        metrics[path] = training.ppo.iterate()
    general, eager = (trainings[path] for path in PATHS)
    assert torch.equal(general.ppo.rollout.terminated, eager.ppo.rollout.terminated)
    assert torch.equal(general.ppo._order, eager.ppo._order)
    for key in ("actions", "observations", "rewards", "log_probs", "values", "advantages"):
        one, other = (getattr(each.ppo.rollout, key) for each in (general, eager))
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    scale = float(first["general"].abs().max())
    torch.testing.assert_close(first["general"], first["eager"], rtol=0, atol=1e-5 * scale)
    torch.testing.assert_close(general.flat.parameters, eager.flat.parameters, rtol=0, atol=1e-4)
    assert metrics["general"] == pytest.approx(metrics["eager"], rel=1e-3, abs=1e-5)


_FLAGS = "            rollout.final_values,\n            rollout.terminated,\n"
_CUT = "(rollout.truncated > rollout.terminated)"
_FINAL = "rollout.final_observations.flatten(0, 1)"
_SHUFFLE = "shuffle(self._order.view(-1), self._iteration, epoch, self.run_seed)"
_VALUES = "rollout.observations.flatten(0, 1)"
_COEFFICIENTS = "self._partials, config.clip_coef, config.ent_coef, config.vf_coef"
_LIMIT_WINS = ("ppo", _FLAGS, _FLAGS.replace("terminated,", "terminated & (1 - rollout.truncated),"))
_CHOSEN = "truncated[m] && !terminated[m]"
# What the float64 replay sees.
PLANTED: dict[str, Fault] = {
    "1 a time limit is a death": (("ppo", _FLAGS, _FLAGS.replace("terminated,", "terminated | rollout.truncated,")),),
    "1 no value at a time limit": ((mlp.FINAL_VALUES, _CHOSEN, "terminated[m]"),),
    "3 bootstrap from the reset observation": (("general", _FINAL, "rollout.observations[1:].flatten(0, 1)"),),
    "3 from the reset observation": (("fused", _FINAL, "rollout.observations[1:].flatten(0, 1)"),),
    "3 bootstrap from V(s_t)": (("general", _FINAL, "rollout.observations[:-1].flatten(0, 1)"),),
    "3 from V(s_t)": (("fused", _FINAL, "rollout.observations[:-1].flatten(0, 1)"),),
    "4 truncation wins over death": (("general", _CUT, "(rollout.truncated > 0)"), _LIMIT_WINS),
    "18 normalized over the whole batch": (
        ("ppo", "order, shifts)\n", "order.view(1, -1), shifts[:1])\n"),
        ("ppo", "zip(order, shifts,", "zip(order, [shifts[0]] * len(order),"),
    ),
    "18 never normalized": (("ppo", "advantage_shift if config.norm_adv else _as_it_is", "_as_it_is"),),
    "20 value factor twice": (("general", "vf_coef=config.vf_coef,", "vf_coef=0.5 * config.vf_coef,"),),
    "20 value factor not at all": (("general", "vf_coef=config.vf_coef,", "vf_coef=2 * config.vf_coef,"),),
    "20 half the value factor": (("fused", _COEFFICIENTS, _COEFFICIENTS.replace("config.vf", "0.5 * config.vf")),),
    "20 twice the value factor": (("fused", _COEFFICIENTS, _COEFFICIENTS.replace("config.vf", "2 * config.vf")),),
    "entropy punished": (("general", "ent_coef=config.ent_coef", "ent_coef=-config.ent_coef"),),
    "less entropy": (("fused", _COEFFICIENTS, _COEFFICIENTS.replace("config.ent", "-config.ent")),),
    "27 schedule one iteration early": (("ppo", "1.0 - iteration / iterations", "1.0 - (iteration + 1) / iterations"),),
    "27 schedule stands still": (("ppo", "learning_rate, iteration,", "learning_rate, 0,"),),
    "29 clip range by another number": (("general", "clip_coef=config.clip_coef", "clip_coef=2 * config.clip_coef"),),
    "29 another clip range": (("fused", _COEFFICIENTS, _COEFFICIENTS.replace("config.clip", "2 * config.clip")),),
    "31 clip fraction before the update": (
        ("ppo", "self.path.look_back(rollout, index, shift, self._metrics_after)",
         "self._metrics_after.copy_(self._metrics[0])"),
    ),
    "31 clip fraction of the upper side": (
        (mlp.POLICY_METRICS["one"], "select((ratio < low) | (ratio > high), ", "select(ratio > high, "),
    ),
    "31 another clip range after the update": (
        ("fused", "self._metric_partials, config.clip_coef", "self._metric_partials, 2 * config.clip_coef"),
    ),
    "37 every epoch in one order": (("ppo", _SHUFFLE, _SHUFFLE.replace("epoch", "0")),),
    "37 every iteration in one order": (
        ("ppo", _SHUFFLE, _SHUFFLE.replace("self._iteration", "torch.zeros_like(self._iteration)")),
    ),
    "not shuffled": (("ppo", _SHUFFLE, "torch.arange(self._order.numel(), out=self._order.view(-1))"),),
    "metrics of the last minibatch alone": (
        (SUMMARY, "for (int k = 0; k < K; k++) total += (double)metrics[k * W + w];",
         "total = (double)K * (double)metrics[(K - 1) * W + w];"),
    ),
    "norm of the last minibatch alone": (
        (SUMMARY, "for (int k = 0; k < K; k++) norm += (double)norms[k];", "norm = (double)K * (double)norms[K - 1];"),
    ),
    "explained variance upside down": ((SUMMARY, "1.0 - error / target", "1.0 - target / error"),),
    "running episodes counted as ended": (
        (ROLLOUT_SUMS, "ended ? (double)episode_return[i] : 0.0", "(double)episode_return[i]"),
    ),
    "only deaths counted as ends": (
        (ROLLOUT_SUMS, "ended = terminated[i] || truncated[i]", "ended = terminated[i]"),
    ),
    "values of another step": (("general", f"value({_VALUES}", "value(rollout.observations.roll(1, 0).flatten(0, 1)"),),
    "values of the step before": (("fused", _VALUES, "rollout.observations.roll(1, 0).flatten(0, 1)"),),
    "gradients pile up": (("general", "        self._flat.gradients.zero_()\n", ""),),
    "gradients of the first parameters": (("fused", "        self._mlp.pack(parameters, self._packed)\n", ""),),
    "never clipped": (("optimizer", "self._max_grad_norm = max_grad_norm", "self._max_grad_norm = 1e9"),),
    "no bias correction": (("optimizer", "1.0 - self._running", "1.0"),),
    "first step's correction for ever": (
        ("optimizer", "np.multiply.accumulate(self._running, out=self._running)", "self._running[:] = (BETA1, BETA2)"),
    ),
    "corrections begin again": (("optimizer", "self._products[:] = self._running[-1]", "pass"),),
    "one schedule for all steps": (("optimizer", "_move(self._schedules[number])", "_move(self._schedules[0])"),),
}  # fmt: skip


@on_each_path(PLANTED)
def test_planted_in_the_iteration(fault: str, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parts = plant(PLANTED[fault], monkeypatch, tmp_path)
    with pytest.raises(AssertionError):
        check_replay(path, parts=parts)


@pytest.mark.parametrize("path", PATHS)
def test_planted_28_adam_epsilon(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adam_kernel, "EPSILON", 1e-8)
    with pytest.raises(AssertionError):
        check_replay(path)


@pytest.mark.parametrize("path", PATHS)
def test_planted_18_minibatch_of_one_is_not_a_number(
    path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for k in (0, 1):
        plant_in_kernel(monkeypatch, tmp_path, ADVANTAGE_SHIFT, f"shift[{k}] = B > 1", f"shift[{k}] = B > 0")
    with pytest.raises((AssertionError, UserError)):
        check_replay(path, config=dataclasses.replace(CONFIG, **CASES["minibatches of one"]))  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------------------------------
# The ends of episodes, worked by hand
# ---------------------------------------------------------------------------------------------------------------------

# One environment a column, three steps; an observation is its own value. An episode that ends reaches 8 and the next
# one begins at 100. gamma = lambda = 0.5, every reward is 1.
#                 none   cut in the middle   dead in the middle   both   cut at the end   dead at the end
OBSERVATIONS = [[1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
                [2.0, 2.0, 2.0, 2.0, 2.0, 2.0],
                [3.0, 100.0, 100.0, 100.0, 3.0, 3.0],
                [4.0, 6.0, 6.0, 6.0, 100.0, 100.0]]  # fmt: skip
TERMINATED = [[0, 0, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1]]
TRUNCATED = [[0, 0, 0, 0, 0, 0], [0, 1, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0]]
ADVANTAGES = [[1.125, 1.75, 0.75, 0.75, 1.25, 1.0],
              [0.5, 3.0, -1.0, -1.0, 1.0, 0.0],
              [0.0, -96.0, -96.0, -96.0, 2.0, -2.0]]  # fmt: skip
LIMIT = 1000
# So it is written into the states of scripted.h: the first value, the steps until 8, whether it dies then; and the
# steps that the episode has had already.
SCRIPT = [[1.0, 1.0, 1.0, 1.0, 1.0, 1.0], [0.0, 2.0, 2.0, 2.0, 3.0, 3.0], [0.0, 0.0, 1.0, 1.0, 0.0, 1.0]]
LENGTHS = [0, LIMIT - 2, 0, LIMIT - 2, LIMIT - 3, 0]


def scripted() -> EnvSpec:
    bounds = ((-math.inf,), (math.inf,))
    return EnvSpec("scripted", 1, *bounds, Discrete(2), LIMIT, 3, (1.0, 1.0), Path(__file__).with_name("scripted.h"))


def check_by_hand(path: str, parts: Parts = Parts()) -> None:
    config = dataclasses.replace(CONFIG, num_envs=6, num_steps=3, gamma=0.5, gae_lambda=0.5)
    policy = dataclasses.replace(POLICY, hidden=(8,), activation="relu")
    training = begin(path, "scripted", config, parts=parts, policy=policy, spec=scripted())
    ppo = training.ppo
    with torch.no_grad():  # the critic: an observation above 0 is its own value
        training.flat.parameters.zero_()
        for layer in (training.policy.critic[0], training.policy.critic[-1]):
            layer.weight[0, 0] = 1.0
    for _ in range(2):  # a second time in used buffers
        state = ppo.env.state()
        state["state"].copy_(torch.tensor(SCRIPT))
        state["episode_length"].copy_(torch.tensor(LENGTHS))
        ppo.rollout.observations[-1].copy_(torch.tensor(OBSERVATIONS[0])[:, None])
        ppo.rollout.final_values.fill_(77.0)  # what no one may read
        ppo.rollout.final_observations.fill_(55.0)
        ppo.collect()
        ppo.advantages()
        assert ppo.rollout.observations[..., 0].tolist() == ppo.rollout.values.tolist() == OBSERVATIONS
        assert ppo.rollout.terminated.tolist() == TERMINATED
        assert ppo.rollout.truncated.tolist() == TRUNCATED
        assert ppo.rollout.advantages.tolist() == ADVANTAGES
        assert ppo.rollout.returns.tolist() == (np.array(ADVANTAGES) + np.array(OBSERVATIONS)[:3]).tolist()


@pytest.mark.parametrize("path", PATHS)
def test_ends_by_hand(path: str) -> None:
    check_by_hand(path)


_DEAD = "terminated[i] = dead;"
_AFTER_AN_END = "for (int k = 0; k < D; k++) tile[(n - share.begin) * D + k] = next[n * D + k];"
ENDS: dict[str, Fault] = {fault: places for fault, places in PLANTED.items() if fault[:2] in ("1 ", "3 ", "4 ")} | {
    "4 the limit wins over death": ((mlp.FINAL_VALUES, _CHOSEN, "truncated[m]"), _LIMIT_WINS),
    "1 a time limit is told as a death": ((mlp.ROLLOUT["one"], _DEAD, "terminated[i] = dead || cut;"),),
    "4 the limit is told, not the death": ((mlp.ROLLOUT["one"], _DEAD, "terminated[i] = dead && !cut;"),),
    "6 the reset over the final observation": (
        (mlp.ROLLOUT["one"], _AFTER_AN_END,
         _AFTER_AN_END.replace("= next", "= final_observation[((long long)t * N + n) * D + k] = next")),
    ),
    "the final observation in place of the next episode's first": ((mlp.ROLLOUT["one"], _AFTER_AN_END, ""),),
}  # fmt: skip


@on_each_path(ENDS)
def test_planted_ends(fault: str, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parts = plant(ENDS[fault], monkeypatch, tmp_path)
    with pytest.raises(AssertionError):
        check_by_hand(path, parts)


def test_planted_6_reset_over_the_final_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = ("self.final_observations[t],", "self.observations[t + 1],")
    monkeypatch.setattr(product, "Rollout", faulty(rollouts, pair).Rollout)
    with pytest.raises(AssertionError):
        check_by_hand("general")


_BOOTSTRAP = "terminated[i] ? 0.0f : truncated[i] ? final_values[i] : values[i + N]"
IN_GAE: dict[str, Fault] = {
    "1": ((GAE, f"bootstrap = {_BOOTSTRAP}", "bootstrap = ended ? 0.0f : values[i + N]"),),
    "2": ((GAE, "(ended ? 0.0f : gamma * gae_lambda * advantage)",
           "(terminated[i] ? 0.0f : gamma * gae_lambda * advantage)"),),
    "3 reset observation": ((GAE, _BOOTSTRAP, _BOOTSTRAP.replace("final_values[i]", "values[i + N]")),),
    "3 own observation": ((GAE, _BOOTSTRAP, _BOOTSTRAP.replace("final_values[i]", "values[i]")),),
    "4": ((GAE, _BOOTSTRAP, "truncated[i] ? final_values[i] : terminated[i] ? 0.0f : values[i + N]"),),
    "7 flag off by one": ((GAE, "terminated[i] || truncated[i]",
                           "t + 1 < T && (terminated[i + N] || truncated[i + N])"),),
    "7 last step": ((GAE, "int t = T - 1;", "int t = T - 2;"),),
    "8": ((GAE, "advantage = delta + (", "advantage = truncated[i] ? 0.0f : delta + ("),),
}  # fmt: skip


@on_each_path(IN_GAE)
def test_planted_in_gae(fault: str, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parts = plant(IN_GAE[fault], monkeypatch, tmp_path)
    with pytest.raises((AssertionError, UserError)):
        check_by_hand(path, parts)


# ---------------------------------------------------------------------------------------------------------------------
# What is collected
# ---------------------------------------------------------------------------------------------------------------------


def check_raw_actions(path: str, parts: Parts = Parts()) -> None:
    """Pendulum: the torque that acted, told from the reward, is the stored one clipped to [-2, 2]."""
    training = begin(path, "pendulum", parts=parts)
    training.ppo.collect()
    rollout = training.ppo.rollout
    action = rollout.actions[..., 0].double()
    cosine, sine, speed = rollout.observations[:-1].double().unbind(-1)
    angle = torch.atan2(sine, cosine)
    torque = action.clamp(-2, 2)
    wanted = -(angle.square() + 0.1 * speed.square() + 0.001 * torque.square())
    torch.testing.assert_close(rollout.rewards.double(), wanted, rtol=1e-5, atol=1e-5)
    old, entropy = log_prob_and_entropy(
        copy.deepcopy(training.policy).double(), rollout.observations[:-1].double(), rollout.actions
    )
    torch.testing.assert_close(rollout.log_probs.double(), old.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(rollout.entropies.double(), entropy.detach(), rtol=1e-4, atol=1e-4)
    assert (action.abs() > 2).any()
    assert (action.abs() < 2).any()


@pytest.mark.parametrize("path", PATHS)
def test_21_raw_actions_are_stored_and_clipped_ones_act(path: str) -> None:
    check_raw_actions(path)


_SAMPLE = "sample(parameters, *drawn, t, self._run_seed, several(self._env.spec), self._first)\n"
_DRAWN = "action[i * ACTION_WIDTH + k] = drawn[k];"
_PLAYED = "clamp(drawn[k], action_low[k], action_high[k])"
ACTIONS: dict[str, Fault] = {
    "21 clipped actions are stored": (
        ("general", _SAMPLE, _SAMPLE + " " * 12 + "rollout.actions[t].clamp_(-2.0, 2.0)\n"),
    ),
    "21 the clipped action is stored": ((mlp.ROLLOUT["continuous"], _DRAWN, _DRAWN.replace("drawn[k]", _PLAYED)),),
    "21 the raw action acts": (
        (mlp.ROLLOUT["continuous"], f"ACTION_WIDTH + k] = {_PLAYED}", "ACTION_WIDTH + k] = drawn[k]"),
    ),
    "21 its log-probability is the clipped action's": (
        (mlp.ROLLOUT["continuous"], "log_prob[i] = distribution.log_prob(drawn);",
         f"for (int k = 0; k < ACTION_WIDTH; k++) played[k] = {_PLAYED};\n"
         "            log_prob[i] = distribution.log_prob(played);"),
    ),
}  # fmt: skip


@on_each_path(ACTIONS)
def test_planted_21(fault: str, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parts = plant(ACTIONS[fault], monkeypatch, tmp_path)
    with pytest.raises(AssertionError):
        check_raw_actions(path, parts)


def test_planted_21_clipped_action_stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for fault, path in (("21 clipped actions are stored", "general"), ("21 the clipped action is stored", "eager")):
        with monkeypatch.context() as patch, pytest.raises(AssertionError):
            check_replay(path, "pendulum", parts=plant(ACTIONS[fault], patch, tmp_path))


@pytest.mark.parametrize("name", NAMES)
def test_the_kernel_plays_as_the_policy_answers(name: str) -> None:
    """The fast path's rollout, and the same policy asked from outside, as an evaluation does: the same bits."""
    training = begin("fused", name)
    training.ppo.iterate()  # so that the observations are not all of an episode's start
    training.flat.parameters.add_(0.1)
    rollout = training.ppo.rollout
    training.ppo._iteration.fill_(1)
    training.ppo._collect()
    training.ppo._advantages()
    policy = networks.FusedPolicy(
        networks.shapes(training.policy, training.flat, training.ppo.env.spec, POLICY), training.flat
    )
    for t in range(rollout.steps):
        action, unused = torch.empty_like(rollout.actions[t]), torch.empty(2, rollout.num_envs)
        sample(policy.distribution(rollout.observations[t]), action, *unused, rollout.steps + t, RUN_SEED)
        assert torch.equal(action, rollout.actions[t])
        assert torch.equal(unused[0], rollout.log_probs[t])
        assert torch.equal(unused[1], rollout.entropies[t])
        assert torch.equal(policy.value(rollout.observations[t]), rollout.values[t])


def check_versions(path: str, parts: Parts = Parts()) -> None:
    ppo = begin(path, parts=parts).ppo
    for iteration in range(3):
        assert (ppo.iteration, ppo.steps, ppo.finished) == (iteration, iteration * 20, False)
        ppo.rollout.policy_versions.fill_(-1)
        ppo.iterate()
        assert ppo.rollout.policy_versions.unique().tolist() == [iteration]
    assert (ppo.steps, ppo.finished) == (60, True)


@pytest.mark.parametrize("path", PATHS)
def test_every_sample_knows_its_policy(path: str) -> None:
    check_versions(path)


_STEPS = "return self.iteration * self.config.batch_size"
VERSIONS: dict[str, Fault] = {
    "version": (("general", "copy_(iteration.expand_as(rollout.policy_versions))", "fill_(0)"),),
    "version in the kernel": ((mlp.ROLLOUT["one"], "policy_version[i] = iteration[0];", "policy_version[i] = 0;"),),
    "steps": (("ppo", _STEPS, _STEPS.replace("batch_size", "num_steps")),),
}


@on_each_path(VERSIONS)
def test_planted_versions(fault: str, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parts = plant(VERSIONS[fault], monkeypatch, tmp_path)
    with pytest.raises(AssertionError):
        check_versions(path, parts)


def check_episodes(path: str, parts: Parts = Parts()) -> None:
    """Returns, lengths and counts of the curve, added up again from rewards and flags across iterations."""
    training = begin(path, "pendulum", dataclasses.replace(CONFIG, total_steps=160), parts=parts)
    total, length, several = np.zeros(4), np.zeros(4), 0
    while not training.ppo.finished:
        metrics = training.ppo.iterate()
        rollout = training.ppo.rollout
        returns, lengths = [], []
        for t in range(rollout.steps):
            total += rollout.rewards[t].double().numpy()
            length += 1
            for n in range(4):
                if rollout.terminated[t, n] or rollout.truncated[t, n]:
                    returns.append(total[n])
                    lengths.append(length[n])
                    total[n] = length[n] = 0
        several += len(set(lengths)) > 0
        assert metrics["episodes"] == len(returns)
        assert metrics["episode_return_mean"] == pytest.approx(np.mean(returns), rel=1e-5)
        assert metrics["episode_length_mean"] == pytest.approx(np.mean(lengths))
    assert several == 8


@pytest.mark.parametrize("path", PATHS)
def test_episode_statistics(path: str) -> None:
    check_episodes(path)


EPISODES = {fault: PLANTED[fault] for fault in ("running episodes counted as ended", "only deaths counted as ends")} | {
    "returns of one step": (
        (mlp.ROLLOUT["continuous"], "finished_episode_return[i] = episode_return[n] = total;",
         "episode_return[n] = total;\n            finished_episode_return[i] = r[agent];"),
    ),
    "lengths go on": ((mlp.ROLLOUT["continuous"], "finished_episode_length[i] = episode_length[n] = length;",
                       "finished_episode_length[i] = (episode_length[n] = length) + 1;"),),
}  # fmt: skip


@on_each_path(EPISODES)
def test_planted_episode_statistics(fault: str, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parts = plant(EPISODES[fault], monkeypatch, tmp_path)
    with pytest.raises(AssertionError):
        check_episodes(path, parts)


@pytest.mark.parametrize("path", PATHS)
def test_an_iteration_without_an_end_has_no_return(path: str) -> None:
    metrics = begin(path, "pendulum", spec=envs.spec("pendulum")).ppo.iterate()
    assert metrics["episodes"] == 0
    assert math.isnan(metrics["episode_return_mean"])
    assert math.isnan(metrics["episode_length_mean"])


# ---------------------------------------------------------------------------------------------------------------------
# Seeds, schedules, states
# ---------------------------------------------------------------------------------------------------------------------


def draws(path: str, run_seed: int, parts: Parts) -> tuple[Tensor, Tensor]:
    """Actions of the uniform policy, and the order of the last epoch."""
    config = dataclasses.replace(CONFIG, num_envs=5, num_steps=8, total_steps=80)
    training = begin(path, config=config, run_seed=run_seed, parts=parts)
    training.flat.parameters.zero_()
    training.ppo.iterate()
    return training.ppo.rollout.actions.clone(), training.ppo._order.flatten()


def check_run_seed(path: str, parts: Parts = Parts()) -> None:
    one, again, other = draws(path, 1, parts), draws(path, 1, parts), draws(path, 2, parts)
    for first, second, third in zip(one, again, other, strict=True):
        assert torch.equal(first, second)
        assert not torch.equal(first, third)
    assert len(one[0].t().unique(dim=0)) == 5  # no two environments draw alike
    assert len(one[0].unique(dim=0)) > 4  # nor the steps
    assert sorted(one[1].tolist()) == list(range(40))


@pytest.mark.parametrize("path", PATHS)
def test_the_run_seed_moves_actions_and_order(path: str) -> None:
    check_run_seed(path)


_KEY = "(unsigned)n, (unsigned)(iteration[0] * T + t), run_seed)"
RUN_SEEDS: dict[str, Fault] = {
    "actions": (("general", _SAMPLE, _SAMPLE.replace("self._run_seed", "0")),),
    "every step alike": (("general", _SAMPLE, _SAMPLE.replace("*drawn, t,", "*drawn, 0,")),),
    "actions in the kernel": ((mlp.ROLLOUT["one"], _KEY, _KEY.replace("run_seed", "0")),),
    "every step alike in the kernel": ((mlp.ROLLOUT["one"], _KEY, _KEY.replace(" * T + t", " * T")),),
    "environments alike in the kernel": ((mlp.ROLLOUT["one"], _KEY, _KEY.replace("(unsigned)n", "0u")),),
    "order": (("ppo", _SHUFFLE, _SHUFFLE.replace("self.run_seed", "0")),),
    "unseeded": (("ppo", "self.run_seed = run_seed", "self.run_seed = int(torch.randint(2**31, ()))"),),
}


@on_each_path(RUN_SEEDS)
def test_planted_run_seed(fault: str, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parts = plant(RUN_SEEDS[fault], monkeypatch, tmp_path)
    with pytest.raises(AssertionError):
        check_run_seed(path, parts)


def check_state(path: str, parts: Parts = Parts()) -> None:
    """Two iterations, then two more in another object from the state: the same bits as four in one."""
    config = dataclasses.replace(CONFIG, total_steps=80)
    whole = begin(path, config=config, parts=parts)
    rates = [whole.ppo.iterate()["learning_rate"] for _ in range(4)]
    assert rates == pytest.approx([0.03, 0.0225, 0.015, 0.0075])
    first = begin(path, config=config, parts=parts)
    for _ in range(2):
        first.ppo.iterate()
    saved = {name: tensor.clone() for name, tensor in first.ppo.state().items()}
    second = begin(path, config=config, parts=parts)
    second.flat.parameters.copy_(first.flat.parameters)
    second.ppo.load_state(saved, first.ppo.iteration)
    assert [second.ppo.iterate()["learning_rate"] for _ in range(2)] == rates[2:]
    assert second.ppo.finished
    assert torch.equal(second.flat.parameters, whole.flat.parameters)
    for name, tensor in whole.ppo.state().items():
        assert torch.equal(second.ppo.state()[name], tensor), name


@pytest.mark.parametrize("path", [*PATHS, "fused"])
def test_27_a_state_holds_all_that_follows(path: str) -> None:
    check_state(path)


STATES: dict[str, Fault] = {
    "counter": (("ppo", "self.iteration = self._begun = iteration", "self.iteration = self._begun = 0"),),
    "environments": (("ppo", '        self.env.load_state(_section(tensors, "env."))\n', ""),),
    "optimizer": (("ppo", '        self.optimizer.load_state(_section(tensors, "optimizer."))\n', ""),),
    "observation": (("ppo", '        self.rollout.observations[-1].copy_(tensors["observation"])\n', ""),),
    "schedule": (("ppo", "self.config.learning_rate, iteration,", "self.config.learning_rate, 0,"),),
    "packed parameters": (("fused", "        self._mlp.pack(self._flat.parameters, self._packed)\n        written",
                           "        written"),),
}  # fmt: skip


@on_each_path(STATES)
def test_planted_state(fault: str, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parts = plant(STATES[fault], monkeypatch, tmp_path)
    with pytest.raises(AssertionError):
        check_state(path, parts)


# ---------------------------------------------------------------------------------------------------------------------
# Numbers that are none
# ---------------------------------------------------------------------------------------------------------------------


def check_not_finite(path: str, field: str, value: float, named: str, parts: Parts = Parts()) -> None:
    """From the second iteration's third step on environment 2 has answered with such a number."""

    def collect(own: Any, self: Any, rollout: rollouts.Rollout, iteration: Tensor, clock: Clock) -> None:
        own.collect(self, rollout, iteration, clock)
        if iteration == 1:
            getattr(rollout, field)[2:, 2] = value

    ppo = begin(path, "pendulum", parts=parts, collect=collect).ppo
    ppo.iterate()
    with pytest.raises(UserError) as error:
        ppo.iterate()
    text = str(error.value)
    assert text.startswith(
        f"iteration 1: every value must be finite; found NaN or infinity in {named} of environment 2 at step"
    )
    assert "\n" not in text


FIELDS = [
    ("observations", math.nan, "observations"),
    ("rewards", math.nan, "rewards"),
    ("rewards", math.inf, "rewards"),
    ("rewards", -math.inf, "rewards"),
    ("log_probs", math.nan, "log_probs"),
    ("final_observations", math.nan, "advantages"),
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("field", "value", "named"), FIELDS)
def test_30_not_a_number_stops(field: str, value: float, named: str, path: str) -> None:
    check_not_finite(path, field, value, named)


NOT_FINITE: dict[str, Fault] = {
    "nobody counts": ((SUMMARY, "numbers[4] = sum[NOT_FINITE];", "numbers[4] = 0.0;"),),
    "nobody looks": (("ppo", 'if numbers.pop("not_finite"):', 'if numbers.pop("not_finite") < 0:'),),
    "rewards are not counted": ((ROLLOUT_SUMS, "not_finite(reward[i]) + ", ""),),
}


@on_each_path(NOT_FINITE)
def test_planted_30(fault: str, path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parts = plant(NOT_FINITE[fault], monkeypatch, tmp_path)
    if fault == "rewards are not counted":  # the advantages would tell
        monkeypatch.setattr(rollouts.Rollout, "first_not_finite", lambda self: "advantages")
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_not_finite(path, *FIELDS[1], parts)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", NAMES)
def test_30_a_diverging_update_stops(name: str, path: str) -> None:
    """A step size that no network survives: a line that says so, not a policy of NaN."""
    ppo = begin(path, name, dataclasses.replace(CONFIG, learning_rate=1e30, total_steps=200)).ppo
    with pytest.raises(UserError, match=r"^iteration \d: .* must be finite; .* smaller ppo.learning_rate$"):
        [ppo.iterate() for _ in range(ppo.iterations)]


# ---------------------------------------------------------------------------------------------------------------------
# What an iteration costs
# ---------------------------------------------------------------------------------------------------------------------


def ticking() -> Callable[[], float]:
    """A clock on which a second passes whenever it is looked at."""
    seconds = iter(range(10**6))
    return lambda: float(next(seconds))


def test_phases_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.profile.time.perf_counter", ticking())
    training = begin("general")
    training.ppo.iterate()
    seconds = training.ppo.clock.seconds()
    assert set(seconds) == {*PHASES, "wall"}
    assert seconds["env_step"] == CONFIG.num_steps
    assert seconds["rollout_forward"] == CONFIG.num_steps + 1  # a second between two steps, before and after them
    assert seconds["advantage"] == seconds["logging"] == 1
    assert seconds["minibatch_update"] == 2  # the optimizer prepares its steps before the rollout
    assert seconds["transfer"] == 0
    assert math.fsum(seconds[name] for name in PHASES) == seconds["wall"]
    assert seconds["other"] > 0
    later = Clock(CPU, seconds)  # goes on from a stop
    with later.phase("env_step"):
        pass
    after = later.seconds()
    assert after["env_step"] == seconds["env_step"] + 1
    assert after["wall"] > seconds["wall"]
    assert math.fsum(after[name] for name in PHASES) == after["wall"]


@pytest.mark.parametrize(("ticks", "share"), [([1, 3], 0.75), ([0, 0], 0.0)], ids=["counted", "no counter"])
def test_phases_within_the_kernel_add_up(ticks: list[int], share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rollout's kernel counts what it spends in the environments, where the processor has a counter."""
    monkeypatch.setattr("pipeline.profile.time.perf_counter", ticking())
    training = begin("fused")
    training.ppo.path._ticks.copy_(torch.tensor(ticks))  # type: ignore[attr-defined]
    training.ppo._collect = lambda: None
    training.ppo.iterate()
    seconds = training.ppo.clock.seconds()
    assert seconds["env_step"] == share  # of the second since the phase began
    assert seconds["rollout_forward"] == 2 - share
    assert math.fsum(seconds[name] for name in PHASES) == seconds["wall"]


def test_the_kernel_counts_its_time() -> None:
    training = begin("fused")
    training.ppo.iterate()
    assert (training.ppo.path._ticks > 0).all()  # type: ignore[attr-defined]
    seconds = training.ppo.clock.seconds()
    assert min(seconds["env_step"], seconds["rollout_forward"]) > 0


def test_three_calls_an_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast path: a program each for the rollout, the advantages and the update, and no kernel by itself."""
    ppo = begin("fused").ppo
    ppo.iterate()
    calls: list[object] = []
    for kind in (Program, Kernel):
        call = kind.__call__

        def counted(self: object, *values: Any, call: Any = call, **options: Any) -> None:
            calls.append(self)
            call(self, *values, **options)

        monkeypatch.setattr(kind, "__call__", counted)
    ppo.iterate()
    assert len(calls) == 3
    assert all(isinstance(each, Program) for each in calls)


class Mallinfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks")),
        *((name, ctypes.c_size_t) for name in ("uordblks", "fordblks", "keepcost")),
    ]


MALLINFO = getattr(ctypes.CDLL(None), "mallinfo2", None)
STATM = Path("/proc/self/statm")
if MALLINFO:
    MALLINFO.restype = Mallinfo


def memory() -> tuple[int, int]:
    """Bytes of this process: resident, and handed out by malloc and not given back."""
    gc.collect()
    info = MALLINFO()  # type: ignore[misc]
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"), info.uordblks + info.hblkhd


def check_memory(threads: int, **methods: Callable[..., Any]) -> None:
    """Nothing that an iteration allocates outlives it, and none needs more than those before."""
    compiler.set_threads(threads)
    ppo = begin("fused", config=dataclasses.replace(CONFIG, total_steps=10**6), **methods).ppo

    def iterate(times: int) -> None:
        for _ in range(times):
            ppo.iterate()

    iterate(30)
    resident, allocated = memory()
    iterate(500)
    more_resident, more_allocated = memory()
    assert more_allocated - allocated < 500  # not a byte an iteration
    assert more_resident - resident < 2**17
    tracemalloc.start()
    try:
        iterate(100)  # Python keeps some numbers' memory for the next ones
        gc.collect()
        traced, _ = tracemalloc.get_traced_memory()
        iterate(500)
        gc.collect()
        later, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert later - traced < 2**11
    assert peak < 2**15  # the numbers of an iteration, and no samples


@pytest.mark.skipif(not (MALLINFO and STATM.exists()), reason="needs glibc's mallinfo2 and Linux's /proc")
@pytest.mark.parametrize("threads", [1, 2])
def test_memory_stays_as_it_is(threads: int) -> None:
    check_memory(threads)


@pytest.mark.skipif(not (MALLINFO and STATM.exists()), reason="needs glibc's mallinfo2 and Linux's /proc")
def test_planted_memory() -> None:
    """Sixteen bytes kept an iteration."""
    kept = []

    def attribute(own: Any, self: Any, clock: Clock) -> None:
        kept.append(torch.zeros(4))

    with pytest.raises(AssertionError):
        check_memory(1, attribute=attribute)
