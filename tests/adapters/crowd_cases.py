"""Parallel environments with PettingZoo's interface for the tests: agents that die at known steps."""

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

LIVES = {"ann": 2, "bob": 5, "cy": 3}  # steps; the world's episode is as long as the longest


class Crowd(ParallelEnv):
    """Each agent sees who it is, its age and a number of the episode's; its reward is 1, 10 or 100 a step.

    ann dies, bob is truncated, cy dies.
    """

    metadata = {"name": "crowd_v0"}  # noqa: RUF012

    def __init__(self, endless: bool = False) -> None:
        self.possible_agents = list(LIVES)
        self.agents: list[str] = []
        self._endless = endless

    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Box(-100.0, 100.0, (3,), np.float32)

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        self.agents, self._age = list(LIVES), 0
        self.seed = seed
        self._mark = np.random.default_rng(seed).uniform(1, 2)
        return self._observe(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        assert sorted(actions) == sorted(self.agents), "actions of those that are there, and no others"
        self._age += 1
        gone = [agent for agent in self.agents if self._age >= LIVES[agent] and not self._endless]
        observations = self._observe()
        rewards = {agent: 10.0 ** list(LIVES).index(agent) for agent in self.agents}
        deaths = {agent: agent in gone and agent != "bob" for agent in self.agents}
        cuts = {agent: agent in gone and agent == "bob" for agent in self.agents}
        self.agents = [agent for agent in self.agents if agent not in gone]
        return observations, rewards, deaths, cuts, {agent: {} for agent in rewards}

    def _observe(self) -> dict[str, np.ndarray]:
        return {agent: np.array([list(LIVES).index(agent), self._age, self._mark], np.float32) for agent in self.agents}


class Unequal(Crowd):
    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Box(-100.0, 100.0, (3 + (agent == "bob"),), np.float32)


def parallel_env(**kwargs: Any) -> Crowd:
    return Crowd(**kwargs)
