"""The recipe on each peer: run by `benchmarks.peers` inside that peer's environment, it prints one line of JSON.

    build/peers/<peer>/bin/python benchmarks/recipes.py <peer> --envs 8 --steps 128 --seconds 5

CartPole-v1, two networks of 64 x 64 tanh, 4 epochs of 4 minibatches, Adam, and the values below. Each peer steps its
environments by its own means; what logs, evaluates or saves is switched off. `docs/benchmarks.md` says what cannot be
made alike. Nothing here imports the product: no peer's environment holds it.
"""

import argparse
import contextlib
import functools
import importlib.metadata
import json
import os
import runpy
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

ENV = "CartPole-v1"
HIDDEN = (64, 64)
EPOCHS = 4
MINIBATCHES = 4
LEARNING_RATE = 2.5e-4  # constant
GAMMA = 0.99
GAE_LAMBDA = 0.95
CLIP = 0.2
MAX_GRAD_NORM = 0.5
VALUE_WEIGHT = 0.25  # of mean((V - R)^2): half of the customary half
WARM_UP = 2  # iterations that are not timed: they compile, allocate and fill caches
ENDLESS = 10**12  # steps: the stopwatch ends a training


class Enough(Exception):  # noqa: N818  # no error: the way out of a peer's training loop
    """The measured seconds are over."""


class Stopwatch:
    """Times whole iterations after the warm-up, and ends the training.

    Args:
        seconds: the least time that is measured.
    """

    def __init__(self, seconds: float) -> None:
        self.wanted, self.iterations, self.seconds = seconds, 0, 0.0
        self._warming, self._begun = WARM_UP, 0.0

    def iteration(self, count: int = 1) -> None:
        """Called after each iteration, or after `count` of them."""
        now = time.perf_counter()
        if self._warming > 0:
            self._warming -= count
            self._begun = now
            return
        self.iterations += count
        self.seconds = now - self._begun
        if self.seconds >= self.wanted:
            raise Enough

    def after(self, owner: Any, method: str) -> None:
        """Every call of this method of the peer, its update, ends an iteration."""
        update = getattr(owner, method)

        @functools.wraps(update)
        def timed(*arguments: Any, **named: Any) -> Any:
            result = update(*arguments, **named)
            self.iteration()
            return result

        setattr(owner, method, timed)


def sb3(envs: int, steps: int, watch: Stopwatch) -> None:
    from stable_baselines3 import PPO

    _like_sb3(PPO, envs, steps, watch)


def sbx(envs: int, steps: int, watch: Stopwatch) -> None:
    from sbx import PPO

    _like_sb3(PPO, envs, steps, watch)


def _like_sb3(algorithm: Any, envs: int, steps: int, watch: Stopwatch) -> None:
    import gymnasium
    from stable_baselines3.common.vec_env import DummyVecEnv

    agent = algorithm(
        "MlpPolicy",
        DummyVecEnv([lambda: gymnasium.make(ENV, disable_env_checker=True)] * envs),
        learning_rate=LEARNING_RATE,
        n_steps=steps,
        batch_size=envs * steps // MINIBATCHES,
        n_epochs=EPOCHS,
        gamma=GAMMA,
        gae_lambda=GAE_LAMBDA,
        clip_range=CLIP,
        ent_coef=0.0,
        vf_coef=VALUE_WEIGHT,
        max_grad_norm=MAX_GRAD_NORM,
        policy_kwargs={"net_arch": {"pi": list(HIDDEN), "vf": list(HIDDEN)}},  # tanh by default
        device="cpu",
    )
    watch.after(agent, "train")
    agent.learn(ENDLESS, log_interval=None)


def skrl(envs: int, steps: int, watch: Stopwatch) -> None:
    import gymnasium
    import torch
    from skrl.agents.torch.ppo import PPO
    from skrl.envs.wrappers.torch import wrap_env
    from skrl.memories.torch import RandomMemory
    from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
    from skrl.trainers.torch import SequentialTrainer

    class Policy(CategoricalMixin, Model):
        def __init__(self, observations: Any, actions: Any) -> None:
            Model.__init__(self, observation_space=observations, action_space=actions, device="cpu")
            CategoricalMixin.__init__(self)
            self.net = _network(torch.nn, self.num_observations, self.num_actions)

        def compute(self, inputs: dict[str, Any], role: str) -> Any:
            return self.net(inputs["observations"]), {}

    class Value(DeterministicMixin, Model):
        def __init__(self, observations: Any, actions: Any) -> None:
            Model.__init__(self, observation_space=observations, action_space=actions, device="cpu")
            DeterministicMixin.__init__(self)
            self.net = _network(torch.nn, self.num_observations, 1)

        def compute(self, inputs: dict[str, Any], role: str) -> Any:
            return self.net(inputs["observations"]), {}

    env = wrap_env(gymnasium.make_vec(ENV, envs, vectorization_mode="vector_entry_point"), verbose=False)
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
    agent = PPO(
        models={name: kind(*spaces.values()) for name, kind in (("policy", Policy), ("value", Value))},
        memory=RandomMemory(memory_size=steps, num_envs=envs, device="cpu"),
        device="cpu",
        cfg={
            "rollouts": steps,
            "learning_epochs": EPOCHS,
            "mini_batches": MINIBATCHES,
            "discount_factor": GAMMA,
            "gae_lambda": GAE_LAMBDA,
            "learning_rate": LEARNING_RATE,
            "grad_norm_clip": MAX_GRAD_NORM,
            "ratio_clip": CLIP,
            "value_clip": 0.0,
            "value_loss_scale": VALUE_WEIGHT,
            "time_limit_bootstrap": True,
            "experiment": {"write_interval": 0, "checkpoint_interval": 0},
        },
        **spaces,
    )
    watch.after(agent, "update")
    trainer = {"timesteps": ENDLESS, "headless": True, "disable_progressbar": True, "close_environment_at_exit": False}
    SequentialTrainer(env=env, agents=agent, cfg=trainer).train()


def _network(nn: Any, inputs: int, outputs: int) -> Any:
    first, second = HIDDEN
    return nn.Sequential(
        nn.Linear(inputs, first), nn.Tanh(), nn.Linear(first, second), nn.Tanh(), nn.Linear(second, outputs)
    )


def tianshou(envs: int, steps: int, watch: Stopwatch) -> None:
    import gymnasium
    import torch
    from tianshou.algorithm import PPO
    from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OnPolicyTrainerParams
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

    env = DummyVectorEnv([lambda: gymnasium.make(ENV, disable_env_checker=True)] * envs)
    actions, batch = env.action_space[0], envs * steps
    actor, critic = (Net(state_shape=(4,), hidden_sizes=HIDDEN, activation=torch.nn.Tanh) for _ in range(2))
    algorithm = PPO(
        policy=DiscreteActorPolicy(
            actor=DiscreteActor(preprocess_net=actor, action_shape=actions.n, softmax_output=False),
            action_space=actions,
        ),
        critic=DiscreteCritic(preprocess_net=critic),
        optim=AdamOptimizerFactory(lr=LEARNING_RATE, eps=1e-5),
        eps_clip=CLIP,
        vf_coef=VALUE_WEIGHT,
        ent_coef=0.0,
        max_grad_norm=MAX_GRAD_NORM,
        gae_lambda=GAE_LAMBDA,
        gamma=GAMMA,
        max_batchsize=batch,
    )
    watch.after(algorithm, "update")
    params = OnPolicyTrainerParams(
        training_collector=Collector(algorithm, env, VectorReplayBuffer(batch, envs)),
        test_collector=None,
        max_epochs=1,
        epoch_num_steps=ENDLESS,
        collection_step_num_env_steps=batch,
        update_step_num_repetitions=EPOCHS,
        batch_size=batch // MINIBATCHES,
        show_progress=False,
        verbose=False,
    )
    algorithm.run_training(params)


def cleanrl(envs: int, steps: int, watch: Stopwatch) -> None:
    class Silent:
        """In the place of TensorBoard's writer; the script's last entry of an iteration is its speed."""

        def __init__(self, folder: str) -> None: ...

        def add_text(self, name: str, text: str) -> None: ...

        def add_scalar(self, name: str, value: float, step: int) -> None:
            if name == "charts/SPS":
                watch.iteration()

        def close(self) -> None: ...

    # Not a module, but all that the peer takes from it.
    sys.modules["torch.utils.tensorboard"] = types.SimpleNamespace(SummaryWriter=Silent)  # type: ignore[assignment]
    values = {
        "env-id": ENV,
        "total-timesteps": ENDLESS,
        "num-envs": envs,
        "num-steps": steps,
        "num-minibatches": MINIBATCHES,
        "update-epochs": EPOCHS,
        "learning-rate": LEARNING_RATE,
        "anneal-lr": False,
        "gamma": GAMMA,
        "gae-lambda": GAE_LAMBDA,
        "clip-coef": CLIP,
        "clip-vloss": False,
        "ent-coef": 0.0,
        "vf-coef": 2 * VALUE_WEIGHT,
        "max-grad-norm": MAX_GRAD_NORM,
        "cuda": False,
    }
    sys.argv = ["ppo.py", *(f"--{name}={value}" for name, value in values.items())]
    runpy.run_module("cleanrl.ppo", run_name="__main__")  # the package holds scripts


def rejax(envs: int, steps: int, watch: Stopwatch) -> None:
    import jax
    from rejax import PPO

    algorithm = PPO.create(
        env=ENV,
        num_envs=envs,
        num_steps=steps,
        num_epochs=EPOCHS,
        num_minibatches=MINIBATCHES,
        learning_rate=LEARNING_RATE,
        gamma=GAMMA,
        gae_lambda=GAE_LAMBDA,
        clip_eps=CLIP,
        ent_coef=0.0,
        vf_coef=2 * VALUE_WEIGHT,
        max_grad_norm=MAX_GRAD_NORM,
        agent_kwargs={"hidden_layer_sizes": HIDDEN, "activation": "tanh"},
    )

    # Its own `train` is this loop with an evaluation in between.
    @jax.jit
    def train(state: Any, count: int) -> Any:
        return jax.lax.fori_loop(0, count, lambda _, state: algorithm.train_iteration(state), state)

    state, count = jax.jit(algorithm.init_state)(jax.random.key(1)), WARM_UP
    while True:
        state = jax.block_until_ready(train(state, count))
        watch.iteration(count)
        count = max(1, 2**16 // (envs * steps))


def pufferlib(envs: int, steps: int, watch: Stopwatch) -> None:
    os.environ["PATH"] = ""  # where it sees an nvcc, it computes advantages on a GPU
    import torch
    from pufferlib.ocean.cartpole.cartpole import Cartpole
    from pufferlib.pufferl import PuffeRL

    class Policy(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor, self.critic = _network(torch.nn, 4, 2), _network(torch.nn, 4, 1)

        def forward_eval(self, observations: Any, state: Any = None) -> Any:
            return self.actor(observations), self.critic(observations)

        forward = forward_eval

    class Silent(PuffeRL):
        def print_dashboard(self, *arguments: Any, **named: Any) -> None: ...

        def mean_and_log(self) -> None: ...

    batch = envs * steps
    config = {
        "env": ENV,
        "seed": 1,
        "device": "cpu",
        "torch_deterministic": True,
        "cpu_offload": False,
        "precision": "float32",
        "compile": False,
        "use_rnn": False,
        "total_timesteps": ENDLESS,
        "checkpoint_interval": ENDLESS,
        "data_dir": os.devnull,
        "batch_size": batch,
        "bptt_horizon": steps,
        "minibatch_size": batch // MINIBATCHES,
        "max_minibatch_size": batch,
        "update_epochs": EPOCHS,
        "optimizer": "adam",
        "learning_rate": LEARNING_RATE,
        "anneal_lr": False,
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_eps": 1e-5,
        "gamma": GAMMA,
        "gae_lambda": GAE_LAMBDA,
        "clip_coef": CLIP,
        "vf_coef": 2 * VALUE_WEIGHT,
        "vf_clip_coef": 1e6,
        "ent_coef": 0.0,
        "max_grad_norm": MAX_GRAD_NORM,
        "vtrace_rho_clip": 1.0,
        "vtrace_c_clip": 1.0,
        "prio_alpha": 0.0,  # segments are drawn uniformly
        "prio_beta0": 1.0,
    }
    trainer = Silent(config, Cartpole(num_envs=envs, report_interval=ENDLESS), Policy())
    trainer.utilization.stop()
    watch.after(trainer, "train")
    while True:
        trainer.evaluate()  # its name of the rollout
        trainer.train()


# By name: the recipe, and the distributions whose versions are reported.
RECIPES: dict[str, tuple[Callable[[int, int, Stopwatch], None], tuple[str, ...]]] = {
    "sb3": (sb3, ("stable-baselines3", "torch", "gymnasium")),
    "sbx": (sbx, ("sbx-rl", "jax", "stable-baselines3", "gymnasium")),
    "skrl": (skrl, ("skrl", "torch", "gymnasium")),
    "tianshou": (tianshou, ("tianshou", "torch", "gymnasium")),
    "cleanrl": (cleanrl, ("cleanrl", "torch", "gym")),
    "pufferlib": (pufferlib, ("pufferlib", "torch")),
    "rejax": (rejax, ("rejax", "jax", "gymnax")),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("peer", choices=RECIPES)
    parser.add_argument("--envs", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    recipe, distributions = RECIPES[options.peer]
    watch = Stopwatch(options.seconds)
    with Path(os.devnull).open("w") as silence, contextlib.redirect_stdout(silence), contextlib.suppress(Enough):
        recipe(options.envs, options.steps, watch)
    result = {
        "steps": watch.iterations * options.envs * options.steps,
        "seconds": watch.seconds,
        "versions": {name: importlib.metadata.version(name) for name in distributions},
    }
    print(json.dumps(result), flush=True)
    os._exit(0)  # what a peer does at its exit belongs to no start-up


if __name__ == "__main__":
    main()
