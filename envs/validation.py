"""Checks that a vector environment must pass before anyone trains on it.

Each check is a function of a factory and a plan: it makes its own environments, plays them with fixed random actions
into poisoned buffers and returns a verdict. A failing check names the element, the environment and the step (0 is the
reset). All comparisons are of bits, so NaN cannot pass for equality. The checks know only the `VectorEnv` interface.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from envs.spec import Box, Discrete, EnvSpec, MultiDiscrete
from envs.vector import StepOutput, VectorEnv, empty_output
from kernels.episode_seeds import episode_seeds
from kernels.errors import UserError

Factory = Callable[[EnvSpec, int, int], VectorEnv]  # (spec, number of environments, run seed)

_GUARD = 64  # elements of poison before and after each buffer
_SHORT_LIMIT = 5  # a time limit that untrained play reaches
_POISON = {torch.float32: 0x7FC0DEAD, torch.int32: -0x7FDEAD01, torch.uint8: 255}  # a NaN that no arithmetic yields
_TRAIN, _SELECTION, _HELD_OUT = 0, 1, 2  # the two top bits of an episode seed


@dataclass(frozen=True)
class Plan:
    """What to play: `steps` steps of `num_envs` environments whose training episodes follow from `run_seed`."""

    spec: EnvSpec
    num_envs: int
    steps: int
    run_seed: int

    def __post_init__(self) -> None:
        if self.steps < 2 * _SHORT_LIMIT:
            raise UserError(f"validate.steps must be at least {2 * _SHORT_LIMIT}, to reach an end; got {self.steps}")

    def limit(self, max_episode_steps: int) -> "Plan":
        """The same plan with another time limit."""
        return dataclasses.replace(self, spec=dataclasses.replace(self.spec, max_episode_steps=max_episode_steps))


@dataclass(frozen=True)
class Check:
    """A verdict. Evidence of a failure: element, environment, step, wanted, found; of a pass: what was looked at."""

    name: str
    verdict: Literal["pass", "fail"]
    evidence: dict[str, Any] | None


class Fault(NamedTuple):
    """Where something was wrong; environment or step is None where the fault has none."""

    element: str
    environment: int | None
    step: int | None
    wanted: str
    found: str


class Trajectory(NamedTuple):
    """What T steps of N environments wrote. Row t of `out` is step t + 1; row t of the seeds holds after step t."""

    first: Tensor  # (N, D)
    actions: Tensor  # (T, N) int32 or (T, N, A) float32
    out: StepOutput  # every field (T, N, ...)
    episode_seed: Tensor  # (T + 1, N) int64
    episode_index: Tensor  # (T + 1, N) int64
    guards: dict[str, Tensor]  # the poison around each buffer

    @property
    def ended(self) -> Tensor:
        """(T, N) bool."""
        return (self.out.terminated == 1) | (self.out.truncated == 1)


def validate(factory: Factory, plan: Plan) -> list[Check]:
    """Every check, in an order in which the first failure is the one to mend first."""
    return [check(factory, plan) for check in CHECKS]


def check_buffers(factory: Factory, plan: Plan) -> Check:
    """Every step writes every element of every output, and nothing beside it (buffers are poisoned first)."""
    played = _play(factory, plan, random_actions(plan))
    faults = [_poisoned("observation", played.first[None], 0)]
    faults += [_poisoned(name, values, 1) for name, values in played.out._asdict().items()]
    for name, guard in played.guards.items():
        if not bool(_is_poison(guard).all()):
            faults.append(
                Fault(name, None, None, "nothing written outside of the buffer", "an element beside it changed")
            )
    elements = sum(values[0].numel() for values in played.out)
    return _check("buffers", faults, {"elements": elements, "steps": plan.steps})


def check_metadata(factory: Factory, plan: Plan) -> Check:
    """What is written agrees with the specification: shapes, flags, bounds, rewards, actions."""
    spec, actions = plan.spec, random_actions(plan)
    env = factory(spec, plan.num_envs, plan.run_seed)
    faults: list[Fault | None] = []
    if env.spec != spec:
        faults.append(Fault("spec", None, None, str(spec.fields()), str(env.spec.fields())))
    if env.num_envs != plan.num_envs:
        faults.append(Fault("num_envs", None, None, str(plan.num_envs), str(env.num_envs)))
    for name in ("episode_seed", "episode_index"):
        found = env.state()[name]
        if (found.dtype, tuple(found.shape)) != (torch.int64, (plan.num_envs,)):
            faults.append(Fault(name, None, None, f"int64 ({plan.num_envs},)", f"{found.dtype} {tuple(found.shape)}"))
    if any(faults):
        return _check("metadata", faults, {})

    played = record(env, actions)
    out = played.out
    low, high = (torch.tensor(b, dtype=torch.float32) for b in (spec.observation_low, spec.observation_high))
    for name, values, first_step in (
        ("observation", played.first[None], 0),
        ("observation", out.observation, 1),
        ("final_observation", out.final_observation, 1),
    ):
        outside = ((values < low) | (values > high)) & values.isfinite()
        faults.append(_where(name, outside, values, "within the observation bounds", first_step))
    least, most = (np.float32(bound) for bound in spec.reward_range)
    slack = 4 * np.spacing(max(abs(least), abs(most)))
    outside = ((out.reward < float(least - slack)) | (out.reward > float(most + slack))) & ~_is_poison(out.reward)
    faults.append(_where("reward", outside, out.reward, f"within {list(spec.reward_range)}", 1))
    for name, flags in (("terminated", out.terminated), ("truncated", out.truncated)):
        faults.append(_where(name, (flags > 1) & ~_is_poison(flags), flags, "0 or 1", 1))
    faults.append(_difference("action", actions, played.actions, 1))
    faults.append(_action_fault(factory, plan))
    return _check("metadata", faults, {"observation_size": spec.observation_size, "steps": plan.steps})


def check_finite(factory: Factory, plan: Plan) -> Check:
    """No observation, reward or return is NaN or infinite."""
    played = _play(factory, plan, random_actions(plan))
    written = [("observation", played.first[None], 0)]
    written += [(name, values, 1) for name, values in played.out._asdict().items() if values.is_floating_point()]
    faults = [
        _where(name, ~torch.isfinite(values) & ~_is_poison(values), values, "a finite number", first_step)
        for name, values, first_step in written
    ]
    return _check("finite", faults, {"steps": plan.steps})


def check_determinism(factory: Factory, plan: Plan) -> Check:
    """The same seeds and actions give the same bits, in another object and in the same one after a reset."""
    actions = random_actions(plan)
    env = factory(plan.spec, plan.num_envs, plan.run_seed)
    played = record(env, actions)
    again = _differences(played, record(env, actions), "the bits of the first run of the same environments")
    other = _differences(played, _play(factory, plan, actions), "the bits of an equal environment's run")
    return _check("determinism", [*other, *again], {"steps": plan.steps, "episodes": _episodes(played)})


def check_seeds(factory: Factory, plan: Plan) -> Check:
    """Training episodes' seeds follow from (run seed, environment, episode) and move what is played."""
    alike = random_actions(plan)[:, :1].expand_as(random_actions(plan)).contiguous()
    played = _play(factory, plan, alike)
    count = torch.cat([torch.zeros(1, plan.num_envs, dtype=torch.int64), played.ended.long().cumsum(0)])
    faults = [_difference("episode_index", count, played.episode_index, 0)]
    wanted = training_seeds(plan, played.episode_index)
    faults.append(_difference("episode_seed", wanted, played.episode_seed, 0))

    drawn = training_seeds(plan, count)[count != torch.cat([count[:1] - 1, count[:-1]])]
    if len(drawn.unique()) != len(drawn):
        repeated = str(len(drawn) - len(drawn.unique()))
        faults.append(Fault("episode_seed", None, None, "every episode's own seed", f"{repeated} repeated"))
    start = _rows(played, _SHORT_LIMIT)
    if plan.num_envs > 1 and bool((start == start[0]).all()):
        faults.append(Fault("observation", None, None, "environments that differ by their seeds", "all alike"))
    neighbour = dataclasses.replace(plan, run_seed=plan.run_seed + 1)
    same = (start == _rows(_play(factory, neighbour, alike), _SHORT_LIMIT)).all(1)
    if bool(same.any()):
        wanted_text = f"another trajectory with run seed {neighbour.run_seed} than with {plan.run_seed}"
        faults.append(Fault("observation", int(same.nonzero()[0]), None, wanted_text, "the same"))
    return _check("seeds", faults, {"episodes": len(drawn)})


def check_resets(factory: Factory, plan: Plan) -> Check:
    """After an end the observation is the next episode's first, and the final observation the old one's last."""
    played = _play(factory, plan, random_actions(plan))
    faults = [_final_fault(played), _next_fault(factory, plan, played)]

    # Truncated early, an episode leaves as its final observation what it would have gone on from.
    short, long = plan.limit(_SHORT_LIMIT), plan.limit(_SHORT_LIMIT + 1)
    actions = random_actions(plan)[:_SHORT_LIMIT]
    cut, uncut = _play(factory, short, actions), _play(factory, long, actions)
    faults.append(_next_fault(factory, short, cut))
    going_on = ~uncut.ended.any(0)
    if len(actions) == _SHORT_LIMIT:
        expected = torch.where(going_on[:, None], uncut.out.observation[-1], cut.out.final_observation[-1])
        faults.append(_difference("final_observation", expected[None], cut.out.final_observation[-1:], _SHORT_LIMIT))
    evidence = {"ends": int(played.ended.sum()), "truncations": int(going_on.sum())}
    return _check("resets", faults, evidence)


def check_time_limit(factory: Factory, plan: Plan) -> Check:
    """Episodes are truncated at the limit and only there; it is not called a death; both may fall on one step."""
    actions = random_actions(plan)
    short, free = plan.limit(_SHORT_LIMIT), plan.limit(plan.steps + 1)
    limited, unlimited, usual = (_play(factory, each, actions) for each in (short, free, plan))
    faults = []
    for played, limit in ((limited, _SHORT_LIMIT), (unlimited, plan.steps + 1), (usual, plan.spec.max_episode_steps)):
        at_limit = (_lengths(played) == limit).to(torch.uint8)
        faults.append(_difference("truncated", at_limit, played.out.truncated, 1))
    first = _SHORT_LIMIT  # within the first episode both play the same, so they die alike
    alive = torch.cat([torch.zeros(1, plan.num_envs), unlimited.ended[: first - 1].float()]).cumsum(0) == 0
    deaths = torch.where(alive, unlimited.out.terminated[:first], limited.out.terminated[:first])
    faults.append(_difference("terminated", deaths, limited.out.terminated[:first], 1))

    evidence = {"truncated": int(limited.out.truncated.sum()), "terminated": int(unlimited.out.terminated.sum())}
    died = (unlimited.out.terminated == 1).nonzero()
    if len(died) and not any(faults):
        step, environment = int(died[0, 0]), int(died[0, 1])  # the earliest: a first episode
        both = _play(factory, plan.limit(step + 1), actions[: step + 1]).out
        for name, flags in (("terminated", both.terminated), ("truncated", both.truncated)):
            if int(flags[step, environment]) != 1:
                wanted = f"1: it died on the very step of the time limit {step + 1}"
                faults.append(Fault(name, environment, step + 1, wanted, str(int(flags[step, environment]))))
        evidence["both"] = int(((both.terminated[step] == 1) & (both.truncated[step] == 1)).sum())
    return _check("time_limit", faults, evidence)


def check_accounting(factory: Factory, plan: Plan) -> Check:
    """Episode length and return count what was played, the last step included, and start again after an end."""
    played = _play(factory, plan, random_actions(plan))
    length, total = _lengths(played), torch.zeros(plan.num_envs, dtype=torch.float64)
    faults = [_difference("episode_length", length.to(torch.int32), played.out.episode_length, 1)]
    expected = torch.empty(played.out.reward.shape, dtype=torch.float64)
    for t, reward in enumerate(played.out.reward.double()):
        total = torch.where(length[t] == 1, reward, total + reward)
        expected[t] = total
    found = played.out.episode_return
    # Rounding of a float32 sum: half an ulp for each addition.
    tolerance = 2.0**-24 * length * max(map(abs, plan.spec.reward_range)) * length + 2.0**-23
    wrong = ~((found.double() - expected).abs() <= tolerance)
    fault = _where("episode_return", wrong, found, "", 1)
    if fault is not None and fault.step is not None and fault.environment is not None:
        fault = fault._replace(wanted=repr(float(expected[fault.step - 1, fault.environment])))
    return _check("accounting", [*faults, fault], {"episodes": _episodes(played)})


def check_alone(factory: Factory, plan: Plan) -> Check:
    """An environment among N plays as it does alone from the same seeds: nothing is shared between neighbours."""
    played = _play(factory, plan, random_actions(plan))
    chosen = sorted({0, plan.num_envs // 3, plan.num_envs // 2, plan.num_envs - 1})
    faults: list[Fault | None] = []
    for i in chosen:
        env = factory(plan.spec, 1, plan.run_seed)
        alone = _played_alone(env, played, i)
        among = StepOutput(*(values[:, i : i + 1] for values in played.out))
        first = _difference("observation", alone.first[None], played.first[None, i : i + 1], 0)
        found = [first, *_output_differences(alone.out, among)]
        faults += [fault._replace(environment=i) for fault in found if fault is not None]
    return _check("alone", faults, {"environments": chosen, "steps": plan.steps})


def check_splits(factory: Factory, plan: Plan) -> Check:
    """Training, selection and held-out seeds are apart, and an environment plays exactly the seed it is given."""
    steps = random_actions(plan)[:_SHORT_LIMIT]
    trained = _play(factory, plan, random_actions(plan))
    faults = [_split_fault(trained.episode_seed, _TRAIN)]
    rows = {_TRAIN: _rows(_play(factory, plan, steps))}
    for split in (_SELECTION, _HELD_OUT):
        seeds = evaluation_seeds(split, plan.num_envs)
        env = factory(plan.spec, plan.num_envs, plan.run_seed)
        played = record(env, steps, seeds)
        faults.append(_difference("episode_seed", seeds[None], played.episode_seed[:1], 0))
        faults.append(_split_fault(played.episode_seed[:1], split))
        for other, trajectory in rows.items():
            same = (trajectory == _rows(played)).all(1)
            if bool(same.any()):
                wanted = f"another trajectory in split {split} than in split {other}"
                faults.append(Fault("observation", int(same.nonzero()[0]), None, wanted, "the same"))
        rows[split] = _rows(played)
    return _check("splits", faults, {"training_seeds": int(trained.episode_seed.unique().numel())})


CHECKS: tuple[Callable[[Factory, Plan], Check], ...] = (
    check_buffers,
    check_metadata,
    check_finite,
    check_determinism,
    check_splits,
    check_seeds,
    check_resets,
    check_time_limit,
    check_accounting,
    check_alone,
)


def random_actions(plan: Plan) -> Tensor:
    """Actions for the whole plan, int32 or within the float32 bounds; the same on every machine."""
    source = np.random.RandomState(plan.run_seed % 2**32)  # its stream is frozen, unlike that of newer generators
    action = plan.spec.action
    if isinstance(action, Discrete):
        return torch.from_numpy((source.random_sample((plan.steps, plan.num_envs)) * action.n).astype(np.int32))
    if isinstance(action, MultiDiscrete):
        uniform = source.random_sample((plan.steps, plan.num_envs, len(action.sizes)))
        return torch.from_numpy((uniform * np.array(action.sizes)).astype(np.int32))
    low, high = np.array(action.low), np.array(action.high)
    uniform = source.random_sample((plan.steps, plan.num_envs, len(low)))
    return torch.from_numpy((low + (high - low) * uniform).astype(np.float32))


def _one_choice_at_a_time(action: MultiDiscrete) -> list[list[int]]:
    """Every action in which at most one choice is not 0."""
    wide = range(len(action.sizes))
    others = [[value * (k == choice) for k in wide] for choice in wide for value in range(1, action.sizes[choice])]
    return [[0 for _ in wide], *others]


def training_seeds(plan: Plan, episode_index: Tensor) -> Tensor:
    """Closed form of the training seeds of episodes (..., N), as int64 bit patterns."""
    environment = torch.arange(plan.num_envs, dtype=torch.int32).expand(episode_index.shape)
    return episode_seeds(plan.run_seed, environment.flatten().contiguous(), episode_index.flatten()).view(
        episode_index.shape
    )


def evaluation_seeds(split: int, count: int) -> Tensor:
    """The first `count` seeds of an evaluation split: the index below the split's two bits, as int64 bit patterns."""
    return torch.from_numpy((np.arange(count, dtype=np.uint64) | np.uint64(split << 62)).view(np.int64))


def record(env: VectorEnv, actions: Tensor, seeds: Tensor | None = None) -> Trajectory:
    """Resets and plays `actions` into poisoned buffers with poison around them; the result lies on the CPU."""
    steps, num_envs = actions.shape[:2]
    device, size = env.device, env.spec.observation_size
    guarded = {"first": _poisoned_buffer((num_envs, size), torch.float32, device)}
    for name, row in empty_output(env.spec, num_envs, torch.device("meta"))._asdict().items():
        guarded[name] = _poisoned_buffer((steps, *row.shape), row.dtype, device)
    first = guarded["first"][0]
    out = StepOutput(**{name: buffer for name, (buffer, _) in guarded.items() if name != "first"})
    sent = actions.to(device, copy=True)

    env.reset(first, None if seeds is None else seeds.to(device))
    states = [_identity(env)]
    for t in range(steps):
        env.step(sent[t], StepOutput(*(values[t] for values in out)))
        states.append(_identity(env))
    return Trajectory(
        first=first.cpu(),
        actions=sent.cpu(),
        out=StepOutput(*(values.cpu() for values in out)),
        episode_seed=torch.stack([seed for seed, _ in states]),
        episode_index=torch.stack([index for _, index in states]),
        guards={name: torch.cat([all_[:_GUARD], all_[-_GUARD:]]).cpu() for name, (_, all_) in guarded.items()},
    )


def _play(factory: Factory, plan: Plan, actions: Tensor) -> Trajectory:
    return record(factory(plan.spec, plan.num_envs, plan.run_seed), actions)


def _identity(env: VectorEnv) -> tuple[Tensor, Tensor]:
    state = env.state()
    return state["episode_seed"].to("cpu", copy=True), state["episode_index"].to("cpu", copy=True)


def _played_alone(env: VectorEnv, among: Trajectory, i: int) -> Trajectory:
    """Environment i's episodes from their seeds, one after the other, by an environment that has no neighbours."""
    parts: list[Trajectory] = []
    ends = [int(t) for t in among.ended[:, i].nonzero()]
    steps = len(among.actions)
    for start, stop in zip([0, *(t + 1 for t in ends)], [*(t + 1 for t in ends), steps], strict=True):
        played = record(env, among.actions[start:stop, i : i + 1].contiguous(), among.episode_seed[start, i : i + 1])
        if parts:  # what the episode before this one was reset to
            parts[-1].out.observation[-1] = played.first
        parts.append(played)
    if ends and ends[-1] == steps - 1:
        parts.pop()
    out = StepOutput(*(torch.cat(fields) for fields in zip(*(part.out for part in parts), strict=True)))
    return parts[0]._replace(out=out)


def _action_fault(factory: Factory, plan: Plan) -> Fault | None:
    """Held actions that differ must not all act alike; beyond its bounds an action acts as the bound."""
    action, steps = plan.spec.action, min(plan.steps, 2 * _SHORT_LIMIT)

    def held(value: float | Sequence[float]) -> Tensor:
        sample = random_actions(plan)[:steps]
        return _rows(_play(factory, plan, torch.tensor(value, dtype=sample.dtype).expand_as(sample).contiguous()))

    if isinstance(action, Discrete | MultiDiscrete):
        choices = range(action.n) if isinstance(action, Discrete) else _one_choice_at_a_time(action)
        outcomes = [held(value) for value in choices]
        if len(outcomes) > 1 and all(torch.equal(outcomes[0], outcome) for outcome in outcomes[1:]):
            return Fault("action", None, None, f"{len(outcomes)} actions of which at least two differ", "all act alike")
        return None
    assert isinstance(action, Box)
    low, high = held(action.low), held(action.high)
    if torch.equal(low, high):
        return Fault("action", None, None, "the bounds to act differently", f"{action.low} acts as {action.high}")
    far = tuple(tuple(bound + sign * (1.0 + abs(bound)) for bound in bounds) for bounds, sign in _bounds(action))
    for beyond, (bounds, _), outcome in zip(far, _bounds(action), (low, high), strict=True):
        differs = (held(beyond) != outcome).any(1)
        if bool(differs.any()):
            return Fault("action", int(differs.nonzero()[0]), None, f"{beyond} to act as the bound {bounds}", "another")
    return None


def _bounds(action: Box) -> tuple[tuple[tuple[float, ...], int], ...]:
    return (action.low, -1), (action.high, 1)


def _final_fault(played: Trajectory) -> Fault | None:
    """`final_observation` equals `observation` where nothing ended; at an end it is neither stale nor the next one."""
    out, ended = played.out, played.ended
    expected = torch.where(ended[..., None], out.final_observation, out.observation)
    fault = _difference("final_observation", expected, out.final_observation, 1)
    before = torch.cat([played.first[None], out.observation[:-1]])
    if fault is not None or not bool((_bits(before) != _bits(out.observation)).any(2)[~ended].all()):
        return fault  # where observations may repeat, equal ones prove nothing
    final = _bits(out.final_observation)
    stale = ended & (final == _bits(before)).all(2)
    reset = ended & (final == _bits(out.observation)).all(2)
    return _where("final_observation", reset, None, "the old episode's last", 1, "the new episode's first") or _where(
        "final_observation", stale, None, "the observation after the last step", 1, "the one before it"
    )


def _next_fault(factory: Factory, plan: Plan, played: Trajectory) -> Fault | None:
    """The observation after an end against that of a reset with the seed of the new episode."""
    ends = played.ended.nonzero()
    if not len(ends):
        return None
    env = factory(plan.spec, len(ends), plan.run_seed)
    fresh = torch.empty(len(ends), plan.spec.observation_size, device=env.device)
    env.reset(fresh, played.episode_seed[1:][played.ended].to(env.device))
    expected = played.out.observation.clone()
    expected[played.ended] = fresh.cpu()
    return _difference("observation", expected, played.out.observation, 1)


def _split_fault(seeds: Tensor, split: int) -> Fault | None:
    return _where("episode_seed", (seeds >> 62) & 3 != split, seeds, f"two top bits {split}", 0)


def _lengths(played: Trajectory) -> Tensor:
    """(T, N) int64: steps of the episode that each step belongs to, itself included, counted from the flags."""
    lengths, count = [], torch.zeros(played.ended.shape[1], dtype=torch.int64)
    for ended in played.ended:
        count = count + 1
        lengths.append(count)
        count = torch.where(ended, 0, count)
    return torch.stack(lengths)


def _episodes(played: Trajectory) -> int:
    return int(played.ended.sum())


def _rows(played: Trajectory, steps: int | None = None) -> Tensor:
    """(N, ...) the bits of all that was observed and rewarded (up to a step), one row an environment."""
    out = StepOutput(*(values[:steps] for values in played.out))
    parts = [played.first[None], out.observation, out.final_observation, out.reward[..., None]]
    return torch.cat([_bits(part).transpose(0, 1).flatten(1) for part in parts], dim=1)


def _poisoned_buffer(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """A buffer full of poison and the whole allocation, which has poison before and after it too."""
    count = int(np.prod(shape))
    whole = torch.empty(count + 2 * _GUARD, dtype=dtype, device=device)
    _bits(whole).fill_(_POISON[dtype])
    return whole[_GUARD : _GUARD + count].view(shape), whole


def _bits(values: Tensor) -> Tensor:
    return values.view(torch.int32) if values.dtype == torch.float32 else values


def _is_poison(values: Tensor) -> Tensor:
    return _bits(values) == _POISON[values.dtype]


def _poisoned(name: str, values: Tensor, first_step: int) -> Fault | None:
    return _where(name, _is_poison(values), None, "to be written", first_step, "still what the buffer held before")


def _difference(name: str, wanted: Tensor, found: Tensor, first_step: int) -> Fault | None:
    differs = _bits(wanted) != _bits(found)
    if not bool(differs.any()):
        return None
    at = tuple(int(i) for i in differs.nonzero()[0])
    return _where(name, differs, found, repr(wanted[at].item()), first_step)


def _output_differences(wanted: StepOutput, found: StepOutput) -> list[Fault | None]:
    return [_difference(name, getattr(wanted, name), getattr(found, name), 1) for name in StepOutput._fields]


def _differences(wanted: Trajectory, found: Trajectory, text: str) -> list[Fault]:
    first = _difference("observation", wanted.first[None], found.first[None], 0)
    faults = [first, *_output_differences(wanted.out, found.out)]
    return [fault._replace(wanted=f"{text} ({fault.wanted})") for fault in faults if fault is not None]


def _where(
    name: str, mask: Tensor, values: Tensor | None, wanted: str, first_step: int, found: str = ""
) -> Fault | None:
    """The first true element of a mask (steps, environments[, components])."""
    if not bool(mask.any()):
        return None
    at = tuple(int(i) for i in mask.nonzero()[0])
    element = name + "".join(f"[{i}]" for i in at[2:])
    return Fault(element, at[1], at[0] + first_step, wanted, found if values is None else repr(values[at].item()))


def _check(name: str, faults: list[Fault | None], evidence: dict[str, Any]) -> Check:
    """Fails with the earliest fault, if there is one; those that lie at no step come last."""
    real = [fault for fault in faults if fault is not None]
    if not real:
        return Check(name, "pass", evidence)
    earliest = min(real, key=lambda fault: float("inf") if fault.step is None else fault.step)
    return Check(name, "fail", earliest._asdict())
