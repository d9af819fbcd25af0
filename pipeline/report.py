"""The report stage: from the artifacts of the configured training seeds to report.md, report.html and metrics.json.

`python -m pipeline.report "seeds=[1,2,3]" out=artifacts/report` reads `train/seed-<k>` and `evaluate/seed-<k>` beside
`out`, for the seeds of the configuration and no others: a folder may still hold seeds that were removed from it.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import document, figures, files, statistics
from pipeline.config import Config, main
from pipeline.document import Block, Code, Figure, Figures, Fold, Paragraph, Section, Table, Tiles, Verdict
from pipeline.figures import Curve
from pipeline.profile import PHASES
from pipeline.results import SeedResult, check_agreement, environment_of, read_seed, training_configuration
from pipeline.statistics import Interval


@dataclass(frozen=True)
class Metric:
    """A column of curve.csv: its name in the report, the title of its axis, and what a reader should know of it."""

    title: str
    axis: str
    meaning: str


RETURN = "episode_return_mean"
METRICS = {
    RETURN: Metric(
        "Training return",
        "episode return",
        "Mean return of the episodes that ended in an iteration. Actions are sampled there, so it is usually below the "
        "greedy held-out return.",
    ),
    "approx_kl": Metric(
        "Approximate KL",
        "approximate KL (nats)",
        "Mean of (r − 1) − log r over the update, r the ratio of new to old action probability: how far the policy "
        "moved from the one that collected the data.",
    ),
    "clip_fraction": Metric(
        "Clip fraction",
        "share of samples",
        "Share of samples whose ratio left [1 − ε, 1 + ε] during the update. Clipping removes their incentive to move "
        "further; it is no trust region, and the policy can still move through other samples and other terms.",
    ),
    "clip_fraction_after": Metric(
        "Clip fraction after the update",
        "share of samples",
        "The same share measured once, after the last minibatch: how many ratios ended outside the range in spite of "
        "clipping.",
    ),
    "value_loss": Metric(
        "Value loss",
        "value loss (return²)",
        "0.5 · mean((V − R)²); the loss holds it times `vf_coef`. It grows with the size of returns, so a rise while "
        "the return rises is no fault.",
    ),
    "entropy": Metric(
        "Entropy",
        "entropy (nats)",
        "Mean entropy of the action distribution. A slow fall is learning; an early fall to the floor is a policy that "
        "stopped exploring. For continuous actions it may be negative.",
    ),
    "explained_variance": Metric(
        "Explained variance",
        "explained variance",
        "1 − Var(R − V) / Var(R): 1 is a perfect value function, 0 is no better than a constant, below 0 is worse.",
    ),
    "policy_loss": Metric(
        "Policy loss",
        "policy loss",
        "The clipped surrogate with its sign turned, averaged over the update. Its level says little.",
    ),
    "grad_norm": Metric(
        "Gradient norm",
        "global L2 norm",
        "Norm of the whole gradient before clipping to `max_grad_norm`.",
    ),
    "learning_rate": Metric("Learning rate", "learning rate", "Adam's step size in the iteration."),
}
PLOTS_IN_VIEW = 6  # the other diagnostics are folded away


def run(config: Config) -> None:
    """Write the report of `config.seeds` to `config.out`. UserError: an artifact is missing or wrong."""
    out = Path(config.out)
    results = [read_seed(out.parent, seed) for seed in config.seeds]
    check_agreement(results, config.env.title)
    summary = summarize(results)
    title, subtitle, blocks = content(results, summary)
    pictures = {f"figures/{figure.name}.svg": figure.svg for figure in document.figures(blocks)}
    for left in set(out.glob("figures/*.svg")) - {out / name for name in pictures}:
        left.unlink()  # of an earlier report with other plots
    for name, text in {
        **pictures,
        "report.md": document.to_markdown(title, subtitle, blocks),
        "report.html": document.to_html(title, subtitle, blocks),
    }.items():
        files.write(out / name, text)
    files.write_json(out / "metrics.json", summary)
    print(f"report: {out / 'report.html'} (seeds {', '.join(str(seed) for seed in config.seeds)})")


# ---------------------------------------------------------------------------------------------------------------------
# Numbers
# ---------------------------------------------------------------------------------------------------------------------


def summarize(results: Sequence[SeedResult]) -> dict[str, Any]:
    """metrics.json: every number of the report that a second run of the pipeline gives again."""
    first = results[0]
    gains = [result.returns["final"] - result.returns["initial"] for result in results]
    pooled = np.concatenate([result.returns["final"] for result in results])
    return {
        "environment": environment_of(first.manifest),
        "env_spec_sha256": first.manifest["env_spec_sha256"],
        "split": first.evaluation["split"],
        "deterministic": first.evaluation["deterministic"],
        "episodes_per_seed": len(first.episode_seeds),
        "return": {
            **asdict(statistics.interval([result.returns["final"] for result in results])),
            "interquartile_mean": statistics.interquartile_mean(pooled),
        },
        "initial_return": asdict(statistics.interval([result.returns["initial"] for result in results])),
        "improvement": {
            **asdict(statistics.interval(gains)),
            "improved_pairs": int(sum((gain > 0).sum() for gain in gains)),
            "equal_pairs": int(sum((gain == 0).sum() for gain in gains)),
            "pairs": int(sum(gain.size for gain in gains)),
        },
        "seeds": {
            str(result.seed): {
                **{
                    key: result.evaluation[key]
                    for key in ("return_mean", "return_std", "return_median", "initial_return_mean", "improvement_mean",
                                "improved_fraction", "step", "checkpoint_sha256")
                },
                "config_sha256": result.manifest["config_sha256"],
                **result.ends,
            }
            for result in results
        },
    }  # fmt: skip


def highest_return(spec: Mapping[str, Any]) -> float | None:
    """The highest return that an episode can reach, from the reward's range and the time limit; None if unbounded."""
    try:
        high, steps = float(spec["reward_range"][1]), int(spec["max_episode_steps"])
    except (KeyError, IndexError, TypeError, ValueError):
        return None
    return (high * steps if high > 0 else high) if np.isfinite(high) else None


# ---------------------------------------------------------------------------------------------------------------------
# Content
# ---------------------------------------------------------------------------------------------------------------------


def content(results: Sequence[SeedResult], summary: Mapping[str, Any]) -> tuple[str, str, list[Block]]:
    """Title, subtitle and blocks of the report, in the order in which a sceptical reader asks."""
    first, n = results[0], len(results)
    environment, split = summary["environment"], _split(summary)
    seeds = ", ".join(str(result.seed) for result in results)
    steps = f"{first.manifest['step']:,} environment steps each"
    if len({result.manifest["step"] for result in results}) > 1:
        steps = "different numbers of environment steps (see the table)"
    greedy = "the most likely action is taken" if summary["deterministic"] else "actions are sampled"
    subtitle = (
        f"PPO, {n} training seed{'s' if n > 1 else ''} ({seeds}), {steps}. Judged on {summary['episodes_per_seed']} "
        f"{split} episodes for each seed, the same ones before and after training; {greedy}."
    )
    blocks: list[Block] = [
        Verdict(_verdict(summary)),
        _tiles(results, summary),
        *(Paragraph(note) for note in _notes(results, summary)),
        Section(f"Each training seed, {split} episodes", [_seed_table(results, summary)]),
        Section("Does it learn, and on every seed?", [Paragraph(_curves_note(n)), _return_figures(results, summary)]),
        Section("How long did it take?", [_time_figures(results)]),
        Section("Was the update healthy?", _diagnostics(results)),
        _how_to_read(results, summary),
        _provenance(results, summary),
    ]
    return f"Training report: {environment}", subtitle, blocks


def _split(summary: Mapping[str, Any]) -> str:
    return str(summary["split"]).replace("_", "-")


def _verdict(summary: Mapping[str, Any]) -> str:
    gain = summary["improvement"]
    against = f"against the untrained policy on the same {_split(summary)} episodes"
    pairs = f"it is better on {gain['improved_pairs']:,} of {gain['pairs']:,} episode pairs"
    mean = f"the mean difference is {_number(gain['mean'], '+')}"
    if gain["low"] is None:
        return f"On this one training seed, {against}, {pairs}; {mean}. One seed says nothing about the next."
    if gain["low"] > 0:
        answer = "Yes, training improved the policy"
    elif gain["high"] < 0:
        answer = "No, training made the policy worse"
    else:
        answer = "No improvement is shown"
    return f"{answer}: {against}, {pairs}; {mean} ({_bounds(gain)})."


def _tiles(results: Sequence[SeedResult], summary: Mapping[str, Any]) -> Tiles:
    found, gain = summary["return"], summary["improvement"]
    worst = min(results, key=lambda result: result.evaluation["return_mean"])
    worse = gain["pairs"] - gain["improved_pairs"] - gain["equal_pairs"]
    rate = np.mean([result.profile["steps_per_second"] for result in results])
    wall = np.mean([result.profile["wall"] for result in results])
    label = _split(summary)
    return Tiles(
        [
            (f"{label.capitalize()} mean return", _number(found["mean"]), _bounds(found)),
            ("Worst seed", _number(worst.evaluation["return_mean"]), f"seed {worst.seed}"),
            ("Gain over initial policy", _number(gain["mean"], "+"), _bounds(gain)),
            (
                "Episode pairs improved",
                _percent(gain["improved_pairs"] / gain["pairs"]),
                f"{gain['improved_pairs']:,} of {gain['pairs']:,}; {gain['equal_pairs']:,} equal, {worse:,} worse",
            ),
            ("Training steps per second", _speed(float(rate)), f"{wall:,.1f} s for a seed, on average"),
        ]
    )


def _notes(results: Sequence[SeedResult], summary: Mapping[str, Any]) -> list[str]:
    """What a reader must know before trusting the headline."""
    notes = []
    found, best = summary["return"], highest_return(results[0].manifest["env_spec"])
    if summary["split"] != "held_out":
        notes.append(
            f"**These episodes are of the `{summary['split']}` split**: choices were made on it, "
            f"so this is no held-out result."
        )
    if found["n"] == 1:
        notes.append(
            "**n = 1 training seed: no interval.** Train more seeds before comparing this number with another."
        )
    elif found["low"] == found["high"]:
        notes.append(
            "All seeds have the same mean, so the interval has no width: no spread was seen, not that there is none."
        )
    elif best is not None and found["high"] > best:
        notes.append(
            f"The interval's upper end lies above the highest possible return, {_number(best)}: "
            f"Student's t knows no ceiling."
        )
    if found["method"] == "hierarchical_bootstrap" and found["n"] < 20:
        notes.append(
            "With so few seeds a bootstrap interval covers less than it claims: about 90% instead of 95% at ten seeds."
        )
    return notes


def _seed_table(results: Sequence[SeedResult], summary: Mapping[str, Any]) -> Table:
    header = [
        "Seed", "Mean", "Standard deviation", "Median", "Initial mean", "Gain", "Steps",
        "Steps/s", "Wall (s)", "Terminated / truncated", "Checkpoint",
    ]  # fmt: skip
    rows = []
    for result in results:
        e, p = result.evaluation, result.profile
        rows.append([
            str(result.seed), f"**{_number(e['return_mean'])}**", _number(e["return_std"]), _number(e["return_median"]),
            _number(e["initial_return_mean"]), _number(e["improvement_mean"], "+"), f"{result.manifest['step']:,}",
            _speed(p["steps_per_second"]), f"{p['wall']:,.1f}",
            f"{result.ends['terminated']} / {result.ends['truncated']}", f"`{result.manifest['sha256'][:12]}`",
        ])  # fmt: skip
    return Table(header, rows, "lrrrrrrrrrn")


def _return_figures(results: Sequence[SeedResult], summary: Mapping[str, Any]) -> Figures:
    curves = [Curve(result.seed, result.step, result.curve[RETURN]) for result in results]
    returns = {result.seed: result.returns for result in results}
    overall = {
        policy: Interval(**{key: value for key, value in summary[name].items() if key != "interquartile_mean"})
        for policy, name in {"initial": "initial_return", "final": "return"}.items()
    }
    caption = "A tick is one episode, the box holds the middle half, the dot is the mean."
    if len(results) > 1:
        caption += f" Diamond and whiskers: mean over seeds with {_bounds_name(summary['return'])}."
    label = _split(summary)
    axis = f"{label} episode return"
    return Figures(
        [
            _curve_figure("return-steps", "Return against environment steps", curves, "environment steps", RETURN),
            _figure(
                "evaluation-return",
                f"{label.capitalize()} return of each seed",
                caption,
                figures.held_out(returns, overall, axis),
            ),
        ]
    )


def _time_figures(results: Sequence[SeedResult]) -> Figures:
    curves = [Curve(result.seed, result.wall, result.curve[RETURN]) for result in results]
    seconds = {result.seed: {phase: result.profile[phase] for phase in PHASES} for result in results}
    caption = "The phases of a bar add up to the wall time of its run."
    return Figures(
        [
            _curve_figure("return-wall-clock", "Return against wall-clock", curves, "wall-clock (s)", RETURN),
            Figure(
                "time-by-phase", "Time by phase", caption, figures.svg(figures.phases(seconds)), _phase_table(results)
            ),
        ]
    )


def _phase_table(results: Sequence[SeedResult]) -> Table:
    wall = np.mean([result.profile["wall"] for result in results])
    means = {phase: float(np.mean([result.profile[phase] for result in results])) for phase in PHASES}
    rows = [[phase.replace("_", " "), f"{mean:,.2f}", _percent(mean / float(wall))] for phase, mean in means.items()]
    return Table(["Phase", "Mean (s)", "Share"], [*rows, ["**wall**", f"**{wall:,.2f}**", ""]], "lrr")


def _diagnostics(results: Sequence[SeedResult]) -> list[Block]:
    plots = []
    for column, metric in METRICS.items():
        if column != RETURN and all(column in result.curve for result in results):
            curves = [Curve(result.seed, result.step, result.curve[column]) for result in results]
            name = column.replace("_", "-")
            plots.append(_curve_figure(name, metric.title, curves, "environment steps", column))
    note = [Paragraph(_curves_note(len(results)) + " Each metric is explained below.")]
    return [*note, Figures(plots[:PLOTS_IN_VIEW]), Fold("More curves", [Figures(plots[PLOTS_IN_VIEW:])])]


def _curves_note(n: int) -> str:
    if n == 1:
        return "One training seed: no spread can be shown."
    return "Thin lines: one seed each. Thick line: their mean. Band: from the lowest to the highest seed."


def _curve_figure(name: str, title: str, curves: Sequence[Curve], x_title: str, column: str) -> Figure:
    size = figures.group_size(curves)
    notes = [] if size == 1 else [f"Each point is the mean of {size} iterations."]
    if empty := [str(curve.seed) for curve in curves if not np.isfinite(curve.y).any()]:
        notes.append(f"No value for seed {', '.join(empty)}, so there is no mean.")
    elif column == RETURN and any(np.isnan(curve.y).any() for curve in curves):
        notes.append("Iterations in which no episode ended have no point; the line joins their neighbours.")
    return _figure(name, title, " ".join(notes), figures.curves(curves, x_title, METRICS[column].axis))


def _figure(name: str, title: str, caption: str, spec: figures.Spec) -> Figure:
    return Figure(name, title, caption, figures.svg(spec))


def _how_to_read(results: Sequence[SeedResult], summary: Mapping[str, Any]) -> Section:
    present = [column for column in METRICS if all(column in result.curve for result in results)]
    interquartile = summary["return"]["interquartile_mean"]
    return Section(
        "How to read this",
        [
            Paragraph(
                "**Intervals.** The sample is the training seed, not the episode: one policy's episodes are alike, and "
                "pooling them makes an interval far too narrow. Two to nine seeds: Student's t on the seeds' means. "
                "Ten and more: a bootstrap that draws seeds, then episodes within each drawn seed. One seed: none. "
                "All seeds play the same episodes, so an interval speaks of other training seeds on these episodes."
            ),
            Paragraph(
                f"**Improvement** is measured pair by pair: the initial and the final policy play the same episode. "
                f"**Interquartile mean** over all final episodes, which outliers do not move: {_number(interquartile)}."
            ),
            Paragraph(
                "**Clipping is no trust region.** It removes the incentive of sampled actions to move further; it "
                "bounds neither the ratio nor the policy. Approximate KL and the clip fraction show how far it went."
            ),
            Table(["Metric", "What it says"], [[f"`{column}`", METRICS[column].meaning] for column in present], "ll"),
        ],
    )


def _provenance(results: Sequence[SeedResult], summary: Mapping[str, Any]) -> Section:
    first = results[0]
    seeds = first.manifest["seeds"]
    environments = seeds.get("environments", "?")
    played = [f"run seed {r.seed}: {r.manifest['seeds'].get('episodes', '?'):,} episodes" for r in results]
    configuration = training_configuration(first)
    digest = hashlib.sha256(json.dumps(summary, sort_keys=True).encode()).hexdigest()
    commands = "\n".join(
        [
            "dvc repro            # makes what is out of date",
            "dvc repro --force    # makes everything again; the hashes stay",
            "sha256sum " + " ".join(f"artifacts/train/seed-{result.seed}/checkpoint.safetensors" for result in results),
        ]
    )
    return Section(
        "Make these numbers again",
        [
            Paragraph(
                "Check out the commit that holds this report's `dvc.lock` and run the pipeline. Everything but "
                "wall-clock figures comes out the same, bit for bit."
            ),
            Code(commands),
            Paragraph(
                f"**Episode seeds.** The two top bits of the 64 name the split: 0 train, 1 selection, 2 held-out, so "
                f"splits cannot meet. Training: the rest is Philox(run seed, environment index below {environments}, "
                f"episode index); {'; '.join(played)}. Evaluation: the rest is the episode's index; the "
                f"`{summary['split']}` split, episodes {_span(first.episode_seeds)}, the same for all training seeds."
            ),
            Fold(
                "Hashes",
                [
                    Table(
                        ["Hash (SHA-256)", ""],
                        [
                            ["environment", f"`{summary['env_spec_sha256']}`"],
                            *([f"configuration, seed {r.seed}", f"`{r.manifest['config_sha256']}`"] for r in results),
                            *([f"checkpoint, seed {r.seed}", f"`{r.manifest['sha256']}`"] for r in results),
                            ["numbers of this report", f"`{digest}`"],
                        ],
                        "ll",
                    )
                ],
            ),
            Fold("Configuration", [Table(["Key", "Value"], [[f"`{k}`", f"`{v}`"] for k, v in configuration], "ll")]),
        ],
    )


def _span(seeds: Sequence[str]) -> str:
    if list(seeds) == [str(index) for index in range(len(seeds))]:
        return f"0 to {len(seeds) - 1}"
    return f"{seeds[0]} to {seeds[-1]} ({len(seeds)} of them)"


def _bounds(found: Mapping[str, Any]) -> str:
    if found["low"] is None:
        return "n = 1 training seed: no interval"
    interval = f"{found['confidence']:.0%} interval {_number(found['low'])} to {_number(found['high'])}"
    return f"{interval}, n = {found['n']} training seeds"


def _bounds_name(found: Mapping[str, Any]) -> str:
    method = {"student_t": "Student's t", "hierarchical_bootstrap": "hierarchical bootstrap"}[found["method"]]
    return f"{found['confidence']:.0%} interval ({method}, n = {found['n']})"


def _number(value: float, sign: str = "") -> str:
    return f"{value:{sign},.1f}".replace("-", "−")


def _speed(rate: float) -> str:
    return f"{rate:,.0f}"


def _percent(share: float) -> str:
    """Rounded, but never up to 100% or down to 0% when some are left."""
    text = f"{100 * share:.1f}"
    if (text == "100.0" and share < 1) or (text == "0.0" and share > 0):
        return "> 99.9%" if share > 0.5 else "< 0.1%"
    return f"{text}%"


if __name__ == "__main__":
    main("report", run)
