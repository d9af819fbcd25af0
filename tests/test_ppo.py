"""One iteration: replayed in float64, worked by hand at the ends of episodes, stopped at numbers that are none."""

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import reference
import torch
from torch import Tensor, nn
from training import Pair, faulty, plant_in_kernel

import envs
from envs.spec import Discrete, EnvSpec
from envs.vector import NativeVectorEnv, StepOutput
from kernels import adam as adam_kernel
from kernels import compiler
from kernels.advantage_shift import ADVANTAGE_SHIFT
from kernels.errors import UserError
from kernels.gae import GAE
from kernels.ppo_loss import METRICS
from pipeline import optimizer as optimizers
from pipeline import ppo as product
from pipeline import rollout as rollouts
from pipeline.config import PolicyConfig, PPOConfig
from pipeline.policy import ActorCritic, FlatParameters, build
from pipeline.profile import PHASES, Clock

CPU = torch.device("cpu")
CONFIG = PPOConfig(
    total_steps=60, num_envs=4, num_steps=5, num_minibatches=2, update_epochs=3, learning_rate=0.03, anneal_lr=True,
    gamma=0.9, gae_lambda=0.8, clip_coef=0.02, norm_adv=True, ent_coef=0.03, vf_coef=0.7, max_grad_norm=0.2,
)  # fmt: skip
RUN_SEED = 6


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    compiler.set_threads(1)


@dataclasses.dataclass
class Training:
    ppo: product.PPO
    policy: ActorCritic
    flat: FlatParameters
    optimizer: optimizers.Adam


def begin(
    module: ModuleType = product, name: str = "cartpole", config: PPOConfig = CONFIG, run_seed: int = RUN_SEED
) -> Training:
    """A training on short episodes; of the first four of CartPole one dies at once, one dies on its last step."""
    spec = envs.spec(name, 3)
    policy, flat = build(spec, PolicyConfig(hidden=(6, 5), activation="tanh", log_std_init=0.7), run_seed, CPU)
    env = envs.make(spec, config.num_envs, run_seed, CPU)
    optimizer = optimizers.Adam(flat, config.max_grad_norm)
    ppo = module.PPO(config, env, policy, optimizer, run_seed, Clock(CPU))
    if name == "cartpole" and config.num_envs == 4:
        state = env.state()
        state["state"][2:, :2] = torch.tensor([[0.2, 0.2], [3.0, 3.0]])  # falling at 3 rad/s, all but beyond the limit
        state["episode_length"][1] = 2
        ppo.rollout.observations[-1].copy_(state["state"].t())
    return Training(ppo, policy, flat, optimizer)


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


def check_replay(module: ModuleType = product, name: str = "cartpole", config: PPOConfig = CONFIG) -> dict[str, float]:
    """Three iterations (the last two start from a policy that has learned), and the same in float64, side by side."""
    training = begin(module, name, config)
    ppo, model = training.ppo, copy.deepcopy(training.policy).double()
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.999), eps=1e-5)
    found: list[dict[str, Tensor]] = []
    step = training.optimizer.step

    def spy(learning_rate: float) -> None:
        found.append({name: p.grad.clone() for name, p in training.policy.named_parameters() if p.grad is not None})
        step(learning_rate)

    training.optimizer.step = spy  # type: ignore[method-assign]
    collected = False
    metrics: dict[str, float] = {}
    for iteration in range(ppo.iterations):
        found.clear()
        metrics = ppo.iterate()
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
            assert error < 5e-5, (iteration, key, float(error))
    assert collected
    return metrics


CASES = {
    "normalized": {},
    "as they are": {"norm_adv": False},
    "one minibatch": {"num_minibatches": 1},
    "minibatches of one": {"num_minibatches": 20, "update_epochs": 1},
    "constant rate": {"anneal_lr": False, "max_grad_norm": 1e9, "ent_coef": 0.0},
}


@pytest.mark.parametrize("case", CASES)
# Breakout pays nothing in so few steps: its advantages are differences of values alone, and normalizing them makes
# rounding as large as they are.
@pytest.mark.parametrize("name", [name for name in envs.names() if name != "breakout"])
def test_iterations_equal_their_replay(name: str, case: str) -> None:
    metrics = check_replay(name=name, config=dataclasses.replace(CONFIG, **CASES[case]))  # type: ignore[arg-type]
    if case == "normalized":
        assert metrics["clip_fraction"] > 0  # the clip was at work
        assert metrics["clip_fraction_after"] > 0  # and did not keep the policy within it
        assert metrics["grad_norm"] > CONFIG.max_grad_norm


def test_the_replay_meets_every_end() -> None:
    ppo = begin().ppo
    ppo.collect()
    pairs = torch.stack([ppo.rollout.terminated, ppo.rollout.truncated], -1).flatten(0, 1).unique(dim=0).tolist()
    assert pairs == [[0, 0], [0, 1], [1, 0], [1, 1]]


_FLAGS = "            rollout.final_values,\n            rollout.terminated,\n"
_CUT = "(rollout.truncated > rollout.terminated)"
_FINAL = "rollout.final_observations.flatten(0, 1)"
_SHUFFLE = "shuffle(self._order, self.iteration, epoch, self.run_seed)"
_VF = "vf_coef=config.vf_coef,"
PLANTED: dict[str, tuple[Pair, ...]] = {
    "1 a time limit is a death": ((_FLAGS, _FLAGS.replace("terminated,", "terminated | rollout.truncated,")),),
    "3 bootstrap from the reset observation": ((_FINAL, "rollout.observations[1:].flatten(0, 1)"),),
    "3 bootstrap from V(s_t)": ((_FINAL, "rollout.observations[:-1].flatten(0, 1)"),),
    "4 truncation wins over death": (
        (_CUT, "(rollout.truncated > 0)"),
        (_FLAGS, _FLAGS.replace("terminated,", "terminated & (1 - rollout.truncated),")),
    ),
    "18 normalized over the whole batch": (
        ("self.shift(rollout.advantages.view(-1), index,", "self.shift(rollout.advantages.view(-1), self._order,"),
    ),
    "18 never normalized": (("advantage_shift if config.norm_adv else _as_it_is", "_as_it_is"),),
    "20 value factor twice": ((_VF, "vf_coef=0.5 * config.vf_coef,"),),
    "20 value factor not at all": ((_VF, "vf_coef=2 * config.vf_coef,"),),
    "entropy punished": (("ent_coef=config.ent_coef", "ent_coef=-config.ent_coef"),),
    "27 schedule one iteration early": (("1.0 - iteration / iterations", "1.0 - (iteration + 1) / iterations"),),
    "27 schedule stands still": (("self.config.learning_rate, self.iteration,", "self.config.learning_rate, 0,"),),
    "29 clip range by another number": (("clip_coef=config.clip_coef", "clip_coef=2 * config.clip_coef"),),
    "31 clip fraction before the update": (
        ("            self._loss(index, parameters, value.detach(), self._metrics_after)\n",
         "            self._metrics_after.copy_(self._metrics[0])\n"),
    ),
    "37 every epoch in one order": ((_SHUFFLE, _SHUFFLE.replace("epoch", "0")),),
    "37 every iteration in one order": ((_SHUFFLE, _SHUFFLE.replace("self.iteration", "0")),),
    "not shuffled": ((_SHUFFLE, "torch.arange(len(self._order), out=self._order)"),),
    "metrics of the last minibatch alone": (("self._metrics.double().mean(0)", "self._metrics[-1].double()"),),
    "norm of the last minibatch alone": (("self._norms.double().mean()", "self._norms[-1]"),),
    "explained variance upside down": (("(target - values.double()).var(correction=0) / variance)",
                                        "variance / (target - values.double()).var(correction=0))"),),
    "running episodes counted as ended": (("rollout.episode_returns[ended]", "rollout.episode_returns.flatten()"),),
    "only deaths counted as ends": (("ended = (rollout.terminated | rollout.truncated).bool()",
                                     "ended = rollout.terminated.bool()"),),
    "values of another step": (("self.policy.value(rollout.observations.flatten(0, 1))",
                                "self.policy.value(rollout.observations.roll(1, 0).flatten(0, 1))"),),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_in_the_iteration(fault: str) -> None:
    with pytest.raises(AssertionError):
        check_replay(faulty(product, *PLANTED[fault]))


def test_planted_21_clipped_action_stored() -> None:
    right = "sample(parameters, *drawn, step, self.run_seed)\n"
    with pytest.raises(AssertionError):
        check_replay(faulty(product, (right, right + " " * 16 + "rollout.actions[t].clamp_(-2.0, 2.0)\n")), "pendulum")


@pytest.mark.parametrize(
    "pair",
    [
        ("        self._flat.gradients.zero_()\n", ""),
        ("self._max_grad_norm = max_grad_norm", "self._max_grad_norm = 1e9"),
        ("1.0 - power1, 1.0 - power2", "1.0, 1.0"),
        ("self._powers *= torch.tensor([BETA1, BETA2], dtype=torch.float64)",
         "self._powers[:] = torch.tensor([BETA1, BETA2], dtype=torch.float64)"),
    ],
    ids=["gradients pile up", "never clipped", "no bias correction", "first step's correction for ever"],
)  # fmt: skip
def test_planted_in_the_optimizer(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizers, "Adam", faulty(optimizers, pair).Adam)
    with pytest.raises(AssertionError):
        check_replay()


def test_planted_28_adam_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adam_kernel, "EPSILON", 1e-8)
    with pytest.raises(AssertionError):
        check_replay()


def test_planted_18_minibatch_of_one_is_not_a_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant_in_kernel(monkeypatch, tmp_path, ADVANTAGE_SHIFT, "B > 1 ? ", "B > 0 ? ")
    with pytest.raises((AssertionError, UserError)):
        check_replay(config=dataclasses.replace(CONFIG, **CASES["minibatches of one"]))  # type: ignore[arg-type]


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


class Scripted:
    """Plays the script above again and again, whatever is done."""

    def __init__(self) -> None:
        infinity = math.inf
        self.spec = EnvSpec(
            "scripted", 1, (-infinity,), (infinity,), Discrete(2), 3, 0, (1.0, 1.0), Path(envs.spec("cartpole").header)
        )
        self.num_envs, self.device, self.t = len(OBSERVATIONS[0]), CPU, 0

    def reset(self, observation: Tensor, episode_seeds: Tensor | None = None) -> None:
        observation.copy_(torch.tensor(OBSERVATIONS[0])[:, None])

    def step(self, action: Tensor, out: StepOutput) -> None:
        t, self.t = self.t, (self.t + 1) % len(TERMINATED)
        following = torch.tensor(OBSERVATIONS[t + 1])
        out.terminated.copy_(torch.tensor(TERMINATED[t]))
        out.truncated.copy_(torch.tensor(TRUNCATED[t]))
        out.reward.fill_(1.0)
        ended = (out.terminated | out.truncated).bool()
        out.final_observation.copy_(torch.where(ended, torch.tensor(8.0), following)[:, None])
        out.observation.copy_(following[:, None])
        out.episode_return.fill_(0.0)
        out.episode_length.fill_(1)

    def state(self) -> dict[str, Tensor]:
        return {}

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        pass


class Identity(nn.Module):
    """An observation is its own value."""

    def distribution(self, observation: Tensor) -> Tensor:
        return torch.zeros(len(observation), 2)

    def value(self, observation: Tensor) -> Tensor:
        return observation[:, 0].clone()


def check_by_hand(module: ModuleType = product) -> None:
    env = Scripted()
    config = dataclasses.replace(CONFIG, num_envs=6, num_steps=3, gamma=0.5, gae_lambda=0.5)
    _, flat = build(env.spec, PolicyConfig(hidden=(2,), activation="tanh", log_std_init=0.0), 1, CPU)
    ppo = module.PPO(config, env, Identity(), optimizers.Adam(flat, 1.0), 1, Clock(CPU))
    for _ in range(2):  # a second time in used buffers
        ppo.rollout.observations[-1].copy_(torch.tensor(OBSERVATIONS[0])[:, None])
        ppo.rollout.final_values.fill_(77.0)  # what no one may read
        ppo.collect()
        ppo.advantages()
        assert ppo.rollout.values.tolist() == OBSERVATIONS
        assert ppo.rollout.advantages.tolist() == ADVANTAGES
        assert ppo.rollout.returns.tolist() == (np.array(ADVANTAGES) + np.array(OBSERVATIONS)[:3]).tolist()


def test_ends_by_hand() -> None:
    check_by_hand()


@pytest.mark.parametrize("fault", [fault for fault in PLANTED if fault[:2] in ("1 ", "3 ", "4 ")])
def test_planted_ends(fault: str) -> None:
    with pytest.raises(AssertionError):
        check_by_hand(faulty(product, *PLANTED[fault]))


def test_planted_6_reset_over_the_final_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = ("self.final_observations[t],", "self.observations[t + 1],")
    monkeypatch.setattr(product, "Rollout", faulty(rollouts, pair).Rollout)
    with pytest.raises(AssertionError):
        check_by_hand()


_BOOTSTRAP = "terminated[i] ? 0.0f : truncated[i] ? final_values[i] : values[i + N]"


@pytest.mark.parametrize(
    "pair",
    [
        (f"bootstrap = {_BOOTSTRAP}", "bootstrap = ended ? 0.0f : values[i + N]"),
        ("(ended ? 0.0f : gamma * gae_lambda * advantage)", "(terminated[i] ? 0.0f : gamma * gae_lambda * advantage)"),
        (_BOOTSTRAP, _BOOTSTRAP.replace("final_values[i]", "values[i + N]")),
        (_BOOTSTRAP, _BOOTSTRAP.replace("final_values[i]", "values[i]")),
        (_BOOTSTRAP, "truncated[i] ? final_values[i] : terminated[i] ? 0.0f : values[i + N]"),
        ("terminated[i] || truncated[i]", "t + 1 < T && (terminated[i + N] || truncated[i + N])"),
        ("int t = T - 1;", "int t = T - 2;"),
        ("advantage = delta + (", "advantage = truncated[i] ? 0.0f : delta + ("),
    ],
    ids=["1", "2", "3 reset observation", "3 own observation", "4", "7 flag off by one", "7 last step", "8"],
)  # fmt: skip
def test_planted_in_gae(pair: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plant_in_kernel(monkeypatch, tmp_path, GAE, *pair)
    with pytest.raises((AssertionError, UserError)):
        check_by_hand()


# ---------------------------------------------------------------------------------------------------------------------
# What is collected
# ---------------------------------------------------------------------------------------------------------------------


def check_raw_actions(module: ModuleType = product) -> None:
    """Pendulum: the torque that acted, told from the reward, is the stored one clipped to [-2, 2]."""
    training = begin(module, "pendulum")
    training.ppo.collect()
    rollout = training.ppo.rollout
    action = rollout.actions[..., 0].double()
    assert (action.abs() > 2).any()
    assert (action.abs() < 2).any()
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


def test_21_raw_actions_are_stored_and_clipped_ones_act() -> None:
    check_raw_actions()


def test_planted_21() -> None:
    right = "sample(parameters, *drawn, step, self.run_seed)\n"
    with pytest.raises(AssertionError):
        check_raw_actions(faulty(product, (right, right + " " * 16 + "rollout.actions[t].clamp_(-2.0, 2.0)\n")))


def check_versions(module: ModuleType = product) -> None:
    ppo = begin(module).ppo
    for iteration in range(3):
        assert (ppo.iteration, ppo.steps, ppo.finished) == (iteration, iteration * 20, False)
        ppo.rollout.policy_versions.fill_(-1)
        ppo.iterate()
        assert ppo.rollout.policy_versions.unique().tolist() == [iteration]
    assert (ppo.steps, ppo.finished) == (60, True)


def test_every_sample_knows_its_policy() -> None:
    check_versions()


@pytest.mark.parametrize(
    "pair",
    [
        ("rollout.policy_versions.fill_(self.iteration)", "rollout.policy_versions.fill_(0)"),
        ("return self.iteration * self.config.batch_size", "return self.iteration * self.config.num_steps"),
    ],
    ids=["version", "steps"],
)
def test_planted_versions(pair: Pair) -> None:
    with pytest.raises(AssertionError):
        check_versions(faulty(product, pair))


def check_episodes(module: ModuleType = product) -> None:
    """Returns, lengths and counts of the curve, added up again from rewards and flags across iterations."""
    training = begin(module, "pendulum", dataclasses.replace(CONFIG, total_steps=160))
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


def test_episode_statistics() -> None:
    check_episodes()


@pytest.mark.parametrize("fault", ["running episodes counted as ended", "only deaths counted as ends"])
def test_planted_episode_statistics(fault: str) -> None:
    with pytest.raises(AssertionError):
        check_episodes(faulty(product, *PLANTED[fault]))


def test_an_iteration_without_an_end_has_no_return() -> None:
    spec = envs.spec("pendulum")
    policy, flat = build(spec, PolicyConfig(hidden=(4,), activation="tanh", log_std_init=0.0), 1, CPU)
    ppo = product.PPO(CONFIG, envs.make(spec, 4, 1, CPU), policy, optimizers.Adam(flat, 1.0), 1, Clock(CPU))
    metrics = ppo.iterate()
    assert metrics["episodes"] == 0
    assert math.isnan(metrics["episode_return_mean"])
    assert math.isnan(metrics["episode_length_mean"])


# ---------------------------------------------------------------------------------------------------------------------
# Seeds, schedules, states
# ---------------------------------------------------------------------------------------------------------------------


def draws(module: ModuleType, run_seed: int) -> tuple[Tensor, Tensor]:
    """Actions of the uniform policy on one observation, and the order of the last epoch."""
    training = begin(
        module, config=dataclasses.replace(CONFIG, num_envs=5, num_steps=8, total_steps=80), run_seed=run_seed
    )
    ppo = training.ppo
    training.flat.parameters.zero_()
    ppo.collect()
    actions = ppo.rollout.actions.clone()
    ppo.advantages()
    ppo.update(0.0)
    return actions, ppo._order.clone()


def check_run_seed(module: ModuleType = product) -> None:
    one, again, other = draws(module, 1), draws(module, 1), draws(module, 2)
    for first, second, third in zip(one, again, other, strict=True):
        assert torch.equal(first, second)
        assert not torch.equal(first, third)
    assert len(one[0].t().unique(dim=0)) == 5  # no two environments draw alike
    assert len(one[0].unique(dim=0)) > 4  # nor the steps
    assert sorted(one[1].tolist()) == list(range(40))


def test_the_run_seed_moves_actions_and_order() -> None:
    check_run_seed()


@pytest.mark.parametrize(
    "pair",
    [
        ("sample(parameters, *drawn, step, self.run_seed)", "sample(parameters, *drawn, step, 0)"),
        ("sample(parameters, *drawn, step, self.run_seed)", "sample(parameters, *drawn, 0, self.run_seed)"),
        (_SHUFFLE, _SHUFFLE.replace("self.run_seed", "0")),
        ("self.run_seed = run_seed", "self.run_seed = int(torch.randint(2**31, ()))"),
    ],
    ids=["actions", "every step alike", "order", "unseeded"],
)
def test_planted_run_seed(pair: Pair) -> None:
    with pytest.raises(AssertionError):
        check_run_seed(faulty(product, pair))


def check_state(module: ModuleType = product) -> None:
    """Two iterations, then two more in another object from the state: the same bits as four in one."""
    config = dataclasses.replace(CONFIG, total_steps=80)
    whole = begin(module, config=config)
    rates = [whole.ppo.iterate()["learning_rate"] for _ in range(4)]
    assert rates == pytest.approx([0.03, 0.0225, 0.015, 0.0075])
    first = begin(module, config=config)
    for _ in range(2):
        first.ppo.iterate()
    saved = {name: tensor.clone() for name, tensor in first.ppo.state().items()}
    second = begin(module, config=config)
    second.flat.parameters.copy_(first.flat.parameters)
    second.ppo.load_state(saved, first.ppo.iteration)
    assert [second.ppo.iterate()["learning_rate"] for _ in range(2)] == rates[2:]
    assert second.ppo.finished
    assert torch.equal(second.flat.parameters, whole.flat.parameters)
    for name, tensor in whole.ppo.state().items():
        assert torch.equal(second.ppo.state()[name], tensor), name


def test_27_a_state_holds_all_that_follows() -> None:
    check_state()


@pytest.mark.parametrize(
    "pair",
    [
        ("        self.iteration = iteration\n", ""),
        ('        self.env.load_state(_section(tensors, "env."))\n', ""),
        ('        self.optimizer.load_state(_section(tensors, "optimizer."))\n', ""),
        ('        self.rollout.observations[-1].copy_(tensors["observation"])\n', ""),
        ("self.config.learning_rate, self.iteration,", "self.config.learning_rate, 0,"),
    ],
    ids=["counter", "environments", "optimizer", "observation", "schedule"],
)
def test_planted_state(pair: Pair) -> None:
    with pytest.raises(AssertionError):
        check_state(faulty(product, pair))


# ---------------------------------------------------------------------------------------------------------------------
# Numbers that are none
# ---------------------------------------------------------------------------------------------------------------------


class Broken(NativeVectorEnv):
    """From its eighth step on (the second iteration's third) environment 2 answers with NaN in one field."""

    field = "observation"
    value = math.nan
    played = 0

    def step(self, action: Tensor, out: StepOutput) -> None:
        super().step(action, out)
        self.played += 1
        if self.played >= 8:
            getattr(out, self.field)[2] = self.value


def check_not_finite(
    monkeypatch: pytest.MonkeyPatch, field: str, value: float, named: str, module: ModuleType = product
) -> None:
    monkeypatch.setattr(Broken, "field", field)
    monkeypatch.setattr(Broken, "value", value)
    monkeypatch.setattr(envs, "make", Broken)
    training = begin(module, "pendulum")
    training.ppo.iterate()
    before = training.flat.parameters.clone()
    with pytest.raises(UserError) as error:
        training.ppo.iterate()
    text = str(error.value)
    assert text.startswith(
        f"iteration 1: every value must be finite; found NaN or infinity in {named} of environment 2 at step"
    )
    assert "\n" not in text
    assert torch.equal(training.flat.parameters, before)  # nothing was learned from it


FIELDS = [
    ("observation", math.nan, "observations"),
    ("reward", math.nan, "rewards"),
    ("reward", math.inf, "rewards"),
    ("final_observation", math.nan, "advantages"),
]


@pytest.mark.parametrize(("field", "value", "named"), FIELDS)
def test_30_not_a_number_stops(monkeypatch: pytest.MonkeyPatch, field: str, value: float, named: str) -> None:
    check_not_finite(monkeypatch, field, value, named)


def test_planted_30(monkeypatch: pytest.MonkeyPatch) -> None:
    module = faulty(product, ("if wrong := rollout.first_not_finite():", "if wrong := None:"))
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_not_finite(monkeypatch, *FIELDS[1], module)


@pytest.mark.parametrize("name", envs.names())
def test_30_a_diverging_update_stops(name: str) -> None:
    """A step size that no network survives: a line that says so, not a policy of NaN."""
    ppo = begin(name=name, config=dataclasses.replace(CONFIG, learning_rate=1e30, total_steps=200)).ppo
    with pytest.raises(UserError, match=r"^iteration \d: .* must be finite; .* smaller ppo.learning_rate$"):
        [ppo.iterate() for _ in range(ppo.iterations)]


# ---------------------------------------------------------------------------------------------------------------------
# Where the time goes
# ---------------------------------------------------------------------------------------------------------------------


def ticking() -> Callable[[], float]:
    """A clock on which a second passes whenever it is looked at."""
    seconds = iter(range(10**6))
    return lambda: float(next(seconds))


def test_phases_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.profile.time.perf_counter", ticking())
    training = begin()
    training.ppo.iterate()
    seconds = training.ppo.clock.seconds()
    assert set(seconds) == {*PHASES, "wall"}
    assert seconds["env_step"] == seconds["rollout_forward"] == CONFIG.num_steps
    assert seconds["advantage"] == seconds["minibatch_update"] == seconds["logging"] == 1
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
