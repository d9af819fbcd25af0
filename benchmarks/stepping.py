"""How fast are environment steps? CartPole on this product and on what people use, alternating in one run.

    python -m benchmarks.stepping                                     # beside Gymnasium's own vector of NumPy arrays
    python -m benchmarks.stepping rounds=21 peer_python=<venv>/bin/python   # beside gymnax too, in that environment

Ours and Gymnasium's are one Python call a step with random actions, on one thread: our buffers are allocated once,
Gymnasium's class allocates its own. gymnax is timed at its best: a compiled scan over 256 steps, actions drawn
beforehand, no Python between the steps. Both give an ended episode's next one in the same run. The median over the
rounds, and the quartiles of each round's ratio.
"""

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

OPTIONS = {"rounds": "11", "seconds": "0.3", "peer_python": ""}
GYMNASIUM, GYMNAX = 2048, 256  # environments
ACTIONS = 64  # batches of actions, used in turn

Timer = Callable[[float], float]  # plays for about so many seconds; environment steps a second


def steps_per_second(step: Callable[[int], Any], size: int, seconds: float) -> float:
    """`step(i)` takes `size` environment steps."""
    count, start = 0, time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds:
        for i in range(ACTIONS):
            step(i)
        count += ACTIONS
    return count * size / spent


def ours(num_envs: int) -> Timer:
    import torch

    import envs
    from envs.vector import empty_output

    cpu = torch.device("cpu")
    env = envs.make(envs.spec("cartpole"), num_envs, 1, cpu)
    out = empty_output(env.spec, num_envs, cpu)
    actions = list(torch.randint(2, (ACTIONS, num_envs), dtype=torch.int32, generator=torch.Generator().manual_seed(1)))
    env.reset(out.observation)
    return lambda seconds: steps_per_second(lambda i: env.step(actions[i], out), num_envs, seconds)


def gymnasium(num_envs: int) -> Timer:
    import gymnasium
    import numpy as np

    env = gymnasium.make_vec("CartPole-v1", num_envs=num_envs, vectorization_mode="vector_entry_point")
    actions = np.random.RandomState(1).randint(0, 2, (ACTIONS, num_envs))
    env.reset(seed=1)
    return lambda seconds: steps_per_second(lambda i: env.step(actions[i]), num_envs, seconds)


def gymnax(num_envs: int) -> Timer:
    """Runs in the peer's environment, which holds nothing of ours."""
    # Both are in the peer's environment alone, where this runs.
    import gymnax  # type: ignore[import-not-found]
    import jax  # type: ignore[import-not-found]

    env, parameters = gymnax.make("CartPole-v1")
    length = 256
    actions = jax.random.randint(jax.random.key(1), (length, num_envs), 0, 2)

    @jax.jit
    def play(key: Any, state: Any) -> Any:
        def one(carry: Any, action: Any) -> Any:
            key, state = carry
            key, own = jax.random.split(key)
            keys = jax.random.split(own, num_envs)
            observation, state, reward, *ended = jax.vmap(env.step, in_axes=(0, 0, 0, None))(
                keys, state, action, parameters
            )
            return (key, state), (observation, reward, *ended[:-1])

        return jax.lax.scan(one, (key, state), actions)

    key = jax.random.key(2)
    _, state = jax.vmap(env.reset, in_axes=(0, None))(jax.random.split(key, num_envs), parameters)
    jax.block_until_ready(play(key, state))  # compiled

    def timer(seconds: float) -> float:
        count, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds:
            jax.block_until_ready(play(key, state))
            count += length
        return count * num_envs / spent

    return timer


@contextmanager
def elsewhere(python: str, num_envs: int) -> Iterator[Timer]:
    """gymnax in a process of another environment, which plays when it is told to."""
    command = [python, str(Path(__file__)), "gymnax", str(num_envs)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        told, heard, errors = process.stdin, process.stdout, process.stderr
        assert told is not None
        assert heard is not None
        assert errors is not None

        def line() -> str:
            text = heard.readline()
            if not text:
                raise OSError(errors.read().strip().splitlines()[-1])
            return text

        def timer(seconds: float) -> float:
            print(seconds, file=told, flush=True)
            return float(line())

        line()  # compiled
        yield timer
        told.close()


def serve(num_envs: int) -> None:
    """The other side of `elsewhere`."""
    timer = gymnax(num_envs)
    print("ready", flush=True)
    for seconds in sys.stdin:
        print(timer(float(seconds)), flush=True)


def compare(table: Any, name: str, num_envs: int, own: Timer, peer: Timer, rounds: int, seconds: float) -> None:
    """Alternating rounds after one that warms up; adds both rows."""
    pairs = [(own(seconds), peer(seconds)) for _ in range(rounds + 1)][1:]
    low, middle, high = statistics.quantiles([mine / theirs for mine, theirs in pairs], n=4)
    for label, values in (("ours", [mine for mine, _ in pairs]), (name, [theirs for _, theirs in pairs])):
        first, _, third = statistics.quantiles(values, n=4)
        spread = f"{first / 1e6:.1f} to {third / 1e6:.1f}"
        ratio = f"{middle:.2f} ({low:.2f} to {high:.2f})" if label == "ours" else ""
        table.add_row(label, f"{num_envs:,}", f"{statistics.median(values) / 1e6:.1f}", spread, ratio)


def limits(rounds: int, seconds: float) -> str:
    """What bounds ours: the call, and each environment in it. The fastest of the rounds."""
    few, many = ours(1), ours(GYMNASIUM)
    call = min(1 / few(seconds) for _ in range(rounds))
    whole = min(GYMNASIUM / many(seconds) for _ in range(rounds))
    each = (whole - call) / (GYMNASIUM - 1)
    return (
        f"Ours: {1e6 * call:.1f} us a call, and {1e9 * each:.1f} ns for each environment in it (fastest of {rounds})."
    )


def main(arguments: Sequence[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    given = dict(each.split("=", 1) for each in arguments if "=" in each)
    if unknown := [each for each in arguments if each.split("=", 1)[0] not in OPTIONS or "=" not in each]:
        sys.exit(f"stepping: wanted {', '.join(f'{key}=<value>' for key in OPTIONS)}; got {unknown[0]!r}")
    options = {**OPTIONS, **given}
    try:
        rounds, seconds = int(options["rounds"]), float(options["seconds"])
    except ValueError as error:
        sys.exit(f"stepping: rounds and seconds must be numbers; {error}")
    if rounds < 2:
        sys.exit(f"stepping: rounds must be at least 2, for a spread; got {rounds}")
    console = Console()
    table = Table("CartPole-v1", "environments", "million steps/s", "quartiles", "ratio (quartiles)")
    compare(table, "Gymnasium, NumPy", GYMNASIUM, ours(GYMNASIUM), gymnasium(GYMNASIUM), rounds, seconds)
    without = "peer_python=<python of an environment with gymnax> was not given"
    if options["peer_python"]:
        try:
            with elsewhere(options["peer_python"], GYMNAX) as peer:
                compare(table, "gymnax, jax", GYMNAX, ours(GYMNAX), peer, rounds, seconds)
            without = ""
        except OSError as error:
            without = str(error)
    console.print(table)
    if without:
        console.print(f"Without gymnax: {without}.")
    console.print(limits(rounds, seconds))


if __name__ == "__main__":
    serve(int(sys.argv[2])) if sys.argv[1:2] == ["gymnax"] else main(sys.argv[1:])
