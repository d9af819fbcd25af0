"""Stage `validate`: the environment's checks; a failing one stops the pipeline and is named in one line."""

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

import envs
from envs import validation
from envs.validation import Check, Factory, Plan
from kernels import compiler
from kernels.errors import UserError
from pipeline import config as configuration
from pipeline import files
from pipeline.config import Config

_SECONDS = 0.2  # for which steps are timed, at least
_STYLES = {"pass": "green", "warning": "yellow", "fail": "bold red", "not applicable": "dim"}


def run(config: Config) -> None:
    """Checks the configured environment and writes, into `<out>`, `validation.json` (verdicts and their evidence, no
    clock) and `throughput.json` (how fast it steps here, which nothing depends on).

    Raises:
        UserError: a check failed, or with `validate.strict` gave a warning; no `validation.json` is left, so that no
            later stage goes on.
    """
    target, throughput = (Path(config.out) / name for name in ("validation.json", "throughput.json"))
    files.expect_writable(target.parent)
    for each in (target, throughput):
        each.unlink(missing_ok=True)
    compiler.set_threads(config.device.threads)
    device = torch.device(config.device.resolve())
    spec = envs.spec(config.env.name, config.env.max_episode_steps, **config.env.host)
    title = config.env.title
    num_envs = -(-config.validate.num_envs // spec.agents) * spec.agents  # whole worlds, where agents are rows
    plan = Plan(spec, num_envs, config.validate.steps, config.seed)

    def factory(spec: envs.EnvSpec, num_envs: int, run_seed: int) -> envs.VectorEnv:
        return envs.make(spec, num_envs, run_seed, device)

    checks = list(check(factory, plan))
    Console(highlight=False).print(table(title, checks))
    refused = [check for check in checks if check.verdict == "fail"]
    if config.validate.strict:
        refused += [check for check in checks if check.verdict == "warning"]
    if refused:
        raise UserError(complaint(title, refused))
    speed = measure(factory, plan)
    files.write_json(throughput, speed)
    files.write_json(target, report(title, spec, checks))
    print(f"{speed['steps_per_second']:,.0f} steps per second with {plan.num_envs} environments")


def check(factory: Factory, plan: Plan) -> Iterator[Check]:
    """All checks; of others' environments first those of what they return, which the vector takes for granted."""
    if not plan.spec.resumable:
        from envs.gymnasium_adapter import GymnasiumSpec, HostSpec  # an extra, and slow to import
        from envs.validation import hosted

        spec = plan.spec
        if isinstance(spec, GymnasiumSpec):
            # In this process, where a clock and global random states are held.
            spec = dataclasses.replace(spec, workers=0)
        assert isinstance(spec, HostSpec)
        plan = dataclasses.replace(plan, spec=spec)
        for done in hosted.validate(spec, plan):
            yield done
            if done.verdict == "fail":
                return
    yield from validation.validate(factory, plan)


def report(title: str, spec: envs.EnvSpec, checks: list[Check]) -> dict[str, Any]:
    """The content of `validation.json`."""
    return {
        "environment": title,
        "env_spec_sha256": spec.sha256(),
        "passed": not any(check.verdict == "fail" for check in checks),
        "warnings": sum(check.verdict == "warning" for check in checks),
        "checks": [check._asdict() for check in checks],
    }


def measure(factory: Factory, plan: Plan) -> dict[str, Any]:
    """The content of `throughput.json`: environment steps per second, all environments together, of random play."""
    env, actions = factory(plan.spec, plan.num_envs, plan.run_seed), validation.random_actions(plan)
    actions = actions.to(env.device)
    out = envs.empty_output(plan.spec, plan.num_envs, env.device)
    env.reset(out.observation)
    played, start = 0, time.perf_counter()
    while (seconds := time.perf_counter() - start) < _SECONDS or not played:
        env.step(actions[played % plan.steps], out)
        played += 1
    steps = played * plan.num_envs
    return {"environments": plan.num_envs, "steps": steps, "seconds": seconds, "steps_per_second": steps / seconds}


def complaint(title: str, refused: list[Check]) -> str:
    """What is to be mended first, in one line: check, place, what was wanted and what was found."""
    first, *others = refused
    strict = "" if first.verdict == "fail" else " (a warning, and validate.strict=true)"
    more = f" (and {len(others)} more)" if others else ""
    return f"{first.name} of {title}: {describe(first)}{strict}{more}"


def describe(check: Check) -> str:
    """The evidence as a sentence: of a fault its place, what was wanted and what came; else what was looked at."""
    evidence = check.evidence or {}
    if check.verdict in ("pass", "not applicable"):
        return ", ".join(f"{name.replace('_', ' ')} {_text(value)}" for name, value in evidence.items())
    where = [f"{name} {evidence[name]}" for name in ("environment", "step") if evidence.get(name) is not None]
    place = ", ".join([*where, str(evidence.get("element"))])
    return f"{place}: wanted {evidence.get('wanted')}; got {evidence.get('found')}"


def table(title: str, checks: list[Check]) -> Group:
    """The verdicts for a terminal, and how many there are of each."""
    result = Table("check", "verdict", "evidence", title=title, title_justify="left")
    counts = dict.fromkeys(_STYLES, 0)
    for check in checks:
        counts[check.verdict] += 1
        style = _STYLES[check.verdict]
        evidence = Text(describe(check), style="" if check.verdict in ("warning", "fail") else "dim")
        result.add_row(Text(check.name), Text(check.verdict, style), evidence)
    words = {"pass": "passed", "warning": "warned", "fail": "failed", "not applicable": "not applicable"}
    parts = [f"[{_STYLES[each]}]{count} {words[each]}[/]" for each, count in counts.items() if count]
    return Group(result, Text.from_markup(", ".join(parts)))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " to ".join(map(_text, value)) if len(value) == 2 else ", ".join(map(_text, value))
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    configuration.main("validate", run)
