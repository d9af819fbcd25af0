"""The native environments in Gymnasium's registry: importing this module registers each, as lockstep/CartPole-v1 is.

Those of several agents in one world are left out: Gymnasium's interface is that of one.

`gymnasium.make("envs.registered:lockstep/CartPole-v1")` imports it by itself.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

import envs
from envs.spec import Box, Discrete, EnvSpec
from envs.vector import NativeVectorEnv, StepOutput, empty_output

_CPU = torch.device("cpu")
_SPELLED = {"cartpole": "CartPole", "gridmaze": "GridMaze"}  # the other names are words
_ENDLESS = 2**31 - 1  # steps: Gymnasium's own wrapper ends the episodes
_SEEDS = 2**62  # of training episodes: their two top bits are 0


def identifier(spec: EnvSpec) -> str:
    """The id in the registry: lockstep/MountainCar-v0 of mountain_car, version 0."""
    words = (_SPELLED.get(word, word.capitalize()) for word in spec.name.split("_"))
    return f"lockstep/{''.join(words)}-v{spec.version}"


def _observations(spec: EnvSpec) -> spaces.Box:
    return spaces.Box(np.array(spec.observation_low, np.float32), np.array(spec.observation_high, np.float32))


def _actions(spec: EnvSpec) -> spaces.Space:
    action = spec.action
    if isinstance(action, Box):
        return spaces.Box(np.array(action.low, np.float32), np.array(action.high, np.float32))
    return spaces.Discrete(action.n) if isinstance(action, Discrete) else spaces.MultiDiscrete(list(action.sizes))


class _Played:
    """N native environments, from NumPy's arrays to NumPy's arrays."""

    def __init__(self, spec: EnvSpec, num_envs: int, run_seed: int) -> None:
        self._env = NativeVectorEnv(spec, num_envs, run_seed, _CPU)
        self._out = empty_output(spec, num_envs, _CPU)
        self._dtype = np.int32 if spec.discrete else np.float32
        self._shape = (num_envs, *spec.action_shape)

    def reset(self, episode_seeds: list[int] | None = None) -> np.ndarray:
        """The first observations, (N, D), of the episodes of these 64-bit seeds, or of the run seed's."""
        bits = None if episode_seeds is None else torch.from_numpy(np.array(episode_seeds, np.uint64).view(np.int64))
        self._env.reset(self._out.observation, bits)
        return self._out.observation.numpy().copy()

    def step(self, action: Any) -> StepOutput:
        """What `StepOutput` holds, as arrays that the next step overwrites."""
        self._env.step(torch.from_numpy(np.array(action, self._dtype).reshape(self._shape)), self._out)
        return self._out

    @property
    def states(self) -> np.ndarray:
        """(N, S), of each environment as it is; after an end that is the next episode's first."""
        return self._env.state()["state"].T.contiguous().numpy().copy()


class Native(gymnasium.Env):
    """One native environment.

    `reset(seed=s)` begins the episode of the 64-bit episode seed s, the same that a training, an evaluation or a replay
    plays from s; without a seed, one that follows from the last seed given. After a death the picture is the last one
    before it.

    Args:
        name: of the native environment.
        render_mode: rgb_array or None.
        parameters: ranges that the episodes draw from (envs/parameters.py, `with_ranges`).
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012  # Gymnasium's own attribute

    def __init__(self, name: str, render_mode: str | None = None, parameters: dict[str, Any] | None = None) -> None:
        self._spec = envs.spec(name, _ENDLESS, parameters)
        self._played = _Played(self._spec, 1, 0)
        self._state = self._played.states[0]
        self.observation_space, self.action_space = _observations(self._spec), _actions(self._spec)
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        first = self._played.reset([int(self.np_random.integers(_SEEDS)) if seed is None else seed])
        self._state = self._played.states[0]
        return first[0], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        out = self._played.step(action)
        terminated = bool(out.terminated[0])
        if not terminated:
            self._state = self._played.states[0]
        return out.final_observation[0].numpy().copy(), float(out.reward[0]), terminated, False, {}

    def render(self) -> np.ndarray | None:  # type: ignore[override]  # Gymnasium's is generic
        """(H, W, 3) uint8."""
        return envs.render(self._spec, self._state) if self.render_mode == "rgb_array" else None


class NativeVector(gymnasium.vector.VectorEnv):
    """N native environments with same-step autoreset.

    `reset(seed=s)` begins the training episodes of run seed s, as a training with seed=s plays them; a list of N seeds
    begins the episodes of these episode seeds.

    Args:
        name, parameters: as of `Native`.
        max_episode_steps: the time limit; None: the environment's own.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30, "autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012  # likewise

    def __init__(
        self,
        name: str,
        num_envs: int = 1,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
        parameters: dict[str, Any] | None = None,
    ) -> None:
        self._spec = envs.spec(name, max_episode_steps, parameters)
        self.num_envs, self.render_mode = num_envs, render_mode
        self.single_observation_space, self.single_action_space = _observations(self._spec), _actions(self._spec)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._played = _Played(self._spec, num_envs, 0)

    # The three are ignored by mypy where they say more than Gymnasium's generic ones.
    def reset(self, *, seed: int | Sequence[int] | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:  # type: ignore[override]
        listed = None
        if isinstance(seed, int | np.integer):
            super().reset(seed=int(seed))
            run_seed = int(seed)
        else:
            listed = None if seed is None else [int(each) for each in seed]
            run_seed = int(self.np_random.integers(_SEEDS))
        self._played = _Played(self._spec, self.num_envs, run_seed)
        return self._played.reset(listed), {}

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:  # type: ignore[override]
        out = StepOutput(*(values.clone() for values in self._played.step(actions)))
        terminated, truncated = out.terminated.bool().numpy(), out.truncated.bool().numpy()
        ended = terminated | truncated
        infos: dict[str, Any] = {}
        if ended.any():
            final = np.full(self.num_envs, None, object)
            for each in ended.nonzero()[0]:
                final[each] = out.final_observation[each].numpy()
            infos = {"final_obs": final, "_final_obs": ended}
        return out.observation.numpy(), out.reward.numpy(), terminated, truncated, infos

    def render(self) -> tuple[np.ndarray, ...] | None:  # type: ignore[override]
        """A picture, (H, W, 3) uint8, of each environment."""
        if self.render_mode != "rgb_array":
            return None
        return tuple(envs.render(self._spec, state) for state in self._played.states)


for _spec in map(envs.spec, envs.names()):
    if _spec.agents == 1:
        gymnasium.register(
            identifier(_spec),
            entry_point=f"{__name__}:Native",
            vector_entry_point=f"{__name__}:NativeVector",
            max_episode_steps=_spec.max_episode_steps,
            kwargs={"name": _spec.name},
        )
