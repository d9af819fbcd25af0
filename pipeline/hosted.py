"""The fast path where the host steps the environments: all but their steps is kernels, as in pipeline/fused.py."""

from torch import Tensor

from envs.vector import VectorEnv
from kernels.mlp import MLP
from pipeline.config import PPOConfig
from pipeline.fused import Learner
from pipeline.general import StepByStep
from pipeline.mlp import HOSTED
from pipeline.policy import FlatParameters
from pipeline.profile import Clock
from pipeline.rollout import Rollout


class Hosted(StepByStep, Learner):
    """Runs an MLP on any environment; what each method has to do is said in pipeline/ppo.py."""

    name = HOSTED

    def __init__(self, mlp: MLP, flat: FlatParameters, env: VectorEnv, config: PPOConfig, run_seed: int) -> None:
        StepByStep.__init__(self, env, run_seed)
        Learner.__init__(self, mlp, flat, config)
        self._distribution = flat.parameters.new_zeros(env.num_envs, mlp.sizes[2])

    def collect(self, rollout: Rollout, iteration: Tensor, clock: Clock) -> None:
        self._mlp.pack(self._flat.parameters, self._packed)
        super().collect(rollout, iteration, clock)

    def distribution(self, observation: Tensor) -> Tensor:
        self._mlp.distribution(self._packed, observation, self._distribution)
        return self._distribution
