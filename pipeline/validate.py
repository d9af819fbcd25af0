"""Stage `validate`: the environment's checks; a failing one stops the pipeline and is named in one line."""

from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import envs
from envs import validation
from kernels import compiler
from kernels.errors import UserError
from pipeline import config as configuration
from pipeline import files
from pipeline.config import Config


def run(config: Config) -> None:
    """Checks the configured environment and writes `<out>/validation.json`: verdicts, no clock.

    Raises:
        UserError: a check failed; no `validation.json` is left, so that no later stage goes on.
    """
    target = Path(config.out) / "validation.json"
    files.expect_writable(target.parent)
    target.unlink(missing_ok=True)
    compiler.set_threads(config.device.threads)
    device = torch.device(config.device.resolve())
    spec = envs.spec(config.env.name, config.env.max_episode_steps, **config.env.host)
    plan = validation.Plan(spec, config.validate.num_envs, config.validate.steps, config.seed)
    checks = validation.validate(lambda spec, num_envs, run_seed: envs.make(spec, num_envs, run_seed, device), plan)
    Console().print(table(spec, checks))
    for check in checks:
        if check.verdict == "fail":
            raise UserError(complaint(spec, check))
    files.write_json(target, report(spec, checks))


def report(spec: envs.EnvSpec, checks: list[validation.Check]) -> dict[str, Any]:
    """The content of `validation.json`."""
    return {
        "environment": spec.name,
        "env_spec_sha256": spec.sha256(),
        "passed": all(check.verdict == "pass" for check in checks),
        "checks": [{"name": check.name, "verdict": check.verdict, "evidence": check.evidence} for check in checks],
    }


def complaint(spec: envs.EnvSpec, check: validation.Check) -> str:
    """A failed check in one line: check, environment, step, element, what was wanted and what was found."""
    evidence = check.evidence or {}
    where = [f"{name} {evidence[name]}" for name in ("environment", "step") if evidence.get(name) is not None]
    place = ", ".join([*where, str(evidence.get("element"))])
    return f"{check.name} of {spec.name}: {place}: wanted {evidence.get('wanted')}; got {evidence.get('found')}"


def table(spec: envs.EnvSpec, checks: list[validation.Check]) -> Table:
    """The verdicts for a terminal."""
    result = Table("check", "verdict", "evidence", title=f"{spec.name}-v{spec.version}")
    for check in checks:
        passed = check.verdict == "pass"
        evidence = {name: value for name, value in (check.evidence or {}).items() if value is not None}
        text = ", ".join(f"{name} {value}" for name, value in evidence.items())
        result.add_row(check.name, check.verdict, text, style=None if passed else "bold red")
    return result


if __name__ == "__main__":
    configuration.main("validate", run)
