"""The rollout buffers: time-major, allocated once, written in place."""

import torch
from torch import Tensor

from envs.spec import EnvSpec
from envs.vector import StepOutput
from pipeline.policy import empty_action


class Rollout:
    """T steps of N environments. Row t holds what the policy saw and did at step t, and what the environment answered.

    `observations` and `values` have one row more: the last one is what the next iteration begins with.
    """

    def __init__(self, spec: EnvSpec, steps: int, num_envs: int, device: torch.device) -> None:
        shape = (steps, num_envs)
        size = spec.observation_size

        def floats(*dimensions: int) -> Tensor:
            return torch.zeros(dimensions, device=device)

        self.steps, self.num_envs = shape
        self.observations = floats(steps + 1, num_envs, size)
        self.actions = empty_action(spec, shape, device)
        self.log_probs, self.entropies = floats(*shape), floats(*shape)
        self.values, self.final_values = floats(steps + 1, num_envs), floats(*shape)
        self.rewards = floats(*shape)
        self.terminated = torch.zeros(shape, dtype=torch.uint8, device=device)
        self.truncated = torch.zeros(shape, dtype=torch.uint8, device=device)
        self.final_observations = floats(*shape, size)
        self.episode_returns = floats(*shape)
        self.episode_lengths = torch.zeros(shape, dtype=torch.int32, device=device)
        self.policy_versions = torch.zeros(shape, dtype=torch.int32, device=device)
        self.advantages, self.returns = floats(*shape), floats(*shape)
        # Views of the samples in one row, (T * N, ...): what was seen, and what the loss reads beside it.
        self.seen = self.observations[:-1].flatten(0, 1)
        self.recorded = (
            self.actions.flatten(0, 1),
            self.log_probs.flatten(),
            self.advantages.flatten(),
            self.returns.flatten(),
        )

    def step_output(self, t: int) -> StepOutput:
        """Where the environment writes step t: views of this buffer, no copies."""
        return StepOutput(
            self.observations[t + 1],
            self.rewards[t],
            self.terminated[t],
            self.truncated[t],
            self.final_observations[t],
            self.episode_returns[t],
            self.episode_lengths[t],
        )

    def first_not_finite(self) -> str | None:
        """The first value that is NaN or infinite, in words: tensor, step, environment. None where all are finite."""
        for name in ("observations", "rewards", "log_probs", "values", "advantages"):
            tensor: Tensor = getattr(self, name)
            wrong = ~tensor.isfinite()
            if wrong.any():
                step, environment = wrong.nonzero()[0, :2].tolist()
                return f"{name} of environment {environment} at step {step} of the rollout"
        return None
