"""The fused rollout is its single kernels, step by step and bit for bit, on native environments of every kind."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
import torch
from compare import poisoned
from conftest import Plant
from networks import network, parameters
from torch import Tensor

import envs
from envs import Discrete, EnvSpec, NativeVectorEnv
from envs.vector import StepOutput, empty_output
from kernels import compiler, mlp
from kernels.launcher import Kernel
from kernels.mlp import MLP
from kernels.sample import sample_categorical, sample_gaussian

pytestmark = pytest.mark.usefixtures("quick_builds")

SEED, ITERATION, STEPS, LIMIT = 2**63 + 5, 3, 12, 5
NAMES = ("acrobot", "breakout", "cartpole", "mountain_car", "mountain_car_continuous", "pendulum", "snake")


def fitting(spec: EnvSpec) -> MLP:
    """A small network for an environment."""
    discrete = isinstance(spec.action, Discrete)
    actions = spec.action.n if isinstance(spec.action, Discrete) else len(spec.action.low)
    return network((9, 17), spec.observation_size, actions, discrete, relu=discrete, shared=discrete)


def kernel(spec: EnvSpec) -> Kernel:
    """The one that `MLP.rollout` runs."""
    seventh = "action" if isinstance(spec.action, Discrete) else "action_low"
    return next(k for k in mlp.ROLLOUT.values() if k.arguments[7].name == seventh)


@pytest.fixture(scope="module", autouse=True)
def _programs(quick_builds: None) -> None:
    """Builds the environments' rollouts, two at a time."""
    with ThreadPoolExecutor(2) as executor:
        specs = [envs.spec(name) for name in NAMES]
        constants = [{**fitting(spec).constants, "STATE": spec.state_size, "AGENTS": spec.agents} for spec in specs]
        builds = [
            executor.submit(compiler.compile_library, kernel(spec).host_unit(spec.header, c), kernel(spec).name)
            for spec, c in zip(specs, constants, strict=True)
        ]
        for build in builds:
            build.result()


@dataclass(frozen=True)
class Played:
    """What T steps of N environments leave, in the order of `MLP.rollout`'s arguments; NaN where nothing is written."""

    action: Tensor
    observation: Tensor
    log_prob: Tensor
    entropy: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final_observation: Tensor
    episode_return: Tensor
    episode_length: Tensor
    policy_version: Tensor


def weights(net: MLP) -> Tensor:
    """Packed; many of a Gaussian's actions are outside of the bounds."""
    flat, result = parameters(net), torch.zeros(net.sizes[0])
    if not net.discrete:
        flat[net.offsets[-1]] = 1.0
    net.pack(flat, result)
    return result


def buffers(net: MLP, N: int) -> Played:
    steps, D = (STEPS, N), net.observation
    whole = {"dtype": torch.int32}
    return Played(
        action=poisoned(*steps, **whole) if net.discrete else poisoned(*steps, int(torch.tensor(net.actions))),
        observation=poisoned(STEPS + 1, N, D),
        log_prob=poisoned(*steps),
        entropy=poisoned(*steps),
        reward=poisoned(*steps),
        terminated=poisoned(*steps, dtype=torch.uint8),
        truncated=poisoned(*steps, dtype=torch.uint8),
        final_observation=poisoned(*steps, D),
        episode_return=poisoned(*steps),
        episode_length=poisoned(*steps, **whole),
        policy_version=poisoned(*steps, **whole),
    )


def begun(spec: EnvSpec, N: int) -> tuple[NativeVectorEnv, Tensor]:
    """Environments in the middle of their episodes, each at another step, and what the policy sees there."""
    env = NativeVectorEnv(spec, N, SEED, torch.device("cpu"))
    observation = torch.empty(N, spec.observation_size)
    env.reset(observation)
    world = torch.arange(N, dtype=torch.int32) // spec.agents
    env.state()["episode_length"].copy_(world % LIMIT)
    env.state()["episode_return"].copy_(torch.arange(N) / 3)
    if spec.agents == 1:
        env.state()["state"][:, 1::2] *= 40.0  # half of them are near an end, whatever the policy sees at first
    return env, observation


def fused(spec: EnvSpec, N: int, iteration: int = ITERATION) -> tuple[Played, dict[str, Tensor]]:
    net, (env, first) = fitting(spec), begun(spec, N)
    played = buffers(net, N)
    played.observation[STEPS] = first
    written = (*vars(played).values(), torch.zeros(mlp.tiles(N, spec.agents), 2, dtype=torch.int64))
    at = torch.tensor([iteration], dtype=torch.int32)
    playing = (weights(net), at, env.state(), env.bounds, written, LIMIT, SEED)
    net.rollout(spec.header, spec.state_size, spec.agents, *playing)
    return played, env.state()


def single(spec: EnvSpec, N: int, iteration: int = ITERATION) -> tuple[Played, dict[str, Tensor]]:
    """Distribution, sample and step, kernel by kernel."""
    net, (env, first) = fitting(spec), begun(spec, N)
    played, own = buffers(net, N), weights(net)
    played.observation[0] = first
    draw = sample_categorical if net.discrete else sample_gaussian
    for t in range(STEPS):
        parameters, out = poisoned(N, net.sizes[2]), empty_output(spec, N, torch.device("cpu"))
        net.distribution(own, played.observation[t], parameters)
        draw(parameters, played.action[t], played.log_prob[t], played.entropy[t], iteration * STEPS + t, SEED)
        env.step(played.action[t], out)
        record(played, t, out)
        played.policy_version[t] = iteration
    return played, env.state()


def record(played: Played, t: int, out: StepOutput) -> None:
    played.observation[t + 1] = out.observation
    played.reward[t], played.terminated[t], played.truncated[t] = out.reward, out.terminated, out.truncated
    cut = out.truncated.bool() & ~out.terminated.bool()
    played.final_observation[t, cut] = out.final_observation[cut]
    played.episode_return[t], played.episode_length[t] = out.episode_return, out.episode_length


def limited(name: str) -> EnvSpec:
    return envs.spec(name, LIMIT)


def check(name: str, environments: int = 33) -> None:
    spec = limited(name)
    N = environments * spec.agents
    (one, state), (other, wanted_state) = fused(spec, N), single(spec, N)
    for field, wanted in vars(other).items():
        assert same(getattr(one, field), wanted), field
    for field, wanted in wanted_state.items():
        assert same(state[field], wanted), field


def same(a: Tensor, b: Tensor) -> bool:
    return a.numpy().tobytes() == b.numpy().tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_single_kernels_give_the_same(name: str) -> None:
    for environments in (1, 7, 33, 100):
        check(name, environments)


def test_episodes_end_in_these_rollouts() -> None:
    """By a time limit, by death, and by both at once."""
    played, _ = fused(limited("cartpole"), 100)
    dead, cut = played.terminated.bool(), played.truncated.bool()
    assert (cut & ~dead).any()
    assert (dead & ~cut).any()
    assert (dead & cut).any()


@pytest.mark.parametrize("name", ["cartpole", "pendulum"])
def test_the_second_rollout_goes_on_where_the_first_ended(name: str) -> None:
    """Row T of the observations is the next rollout's row 0."""
    spec, N = limited(name), 7
    net, (env, first) = fitting(spec), begun(spec, N)
    played, own, at = buffers(net, N), weights(net), torch.zeros(1, dtype=torch.int32)
    played.observation[STEPS] = first
    written = (*vars(played).values(), torch.zeros(mlp.tiles(N), 2, dtype=torch.int64))
    for iteration in range(2):
        at[0] = iteration
        last = played.observation[STEPS].clone()
        net.rollout(spec.header, spec.state_size, 1, own, at, env.state(), env.bounds, written, LIMIT, SEED)
        assert same(played.observation[0], last)
    assert (played.policy_version == 1).all()


def test_tiles_and_threads_change_no_bit() -> None:
    spec, N = limited("cartpole"), 100
    wanted, _ = fused(spec, N)
    try:
        for threads in (2, 3):
            compiler.set_threads(threads)
            again, _ = fused(spec, N)
            assert all(same(a, b) for a, b in zip(vars(again).values(), vars(wanted).values(), strict=True))
    finally:
        compiler.set_threads(1)


STEP = "(unsigned)(iteration[0] * T + t)"
CUT = "if (cut && !dead)\n"
FAULTS = {
    "every iteration draws alike": ("cartpole", STEP, "(unsigned)t"),
    "every environment draws alike": ("cartpole", "sample(drawn, (unsigned)n", "sample(drawn, 0u"),
    "the policy goes on with the last state's observation": (
        "cartpole",
        "for (int k = 0; k < D; k++) tile[(n - share.begin) * D + k] = next[n * D + k];",
        "",
    ),
    "the policy sees the step before": (
        "cartpole",
        "for (int k = 0; k < D; k++) tile[(n - share.begin) * D + k] = o[k];",
        "",
    ),
    "the time limit is one step late": ("cartpole", "length >= max_episode_steps", "length > max_episode_steps"),
    "deaths have a final observation": ("cartpole", CUT, "if (cut || dead)\n"),
    "the return lacks its last reward": ("cartpole", "episode_return[n] + r[agent];", "episode_return[n];"),
    "the episode after is the same": ("cartpole", "episode_index[first] + 1", "episode_index[first]"),
    "the length is not reset": ("cartpole", "episode_length[n] = 0;", ""),
    "entropy: the log-probability": ("cartpole", "entropy[i] = distribution.entropy()", "entropy[i] = log_prob[i]"),
    "all agents play what the last one drew": ("snake", "played[agent * ACTION_WIDTH + k]", "played[k]"),
    "a world begins again in its first row alone": (
        "snake", "for (int n = first; n < first + AGENTS; n++) {", "for (int n = first; n <= first; n++) {"
    ),
    "the raw action is played": ("pendulum", "clamp(drawn[k], action_low[k], action_high[k])", "drawn[k]"),
    "the clipped action is recorded": (
        "pendulum",
        "action[i * ACTION_WIDTH + k] = drawn[k];",
        "action[i * ACTION_WIDTH + k] = clamp(drawn[k], action_low[k], action_high[k]);",
    ),
    "the first observation is not kept": (
        "pendulum",
        "BLOCK_FOR(i, 0, rows * D) observation[share.begin * D + i] = tile[i];",
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(plant: Plant, fault: str) -> None:
    name, right, wrong = FAULTS[fault]
    spec = limited(name)
    plant(kernel(spec), right, wrong, spec.header)
    with pytest.raises(AssertionError):
        check(name)
