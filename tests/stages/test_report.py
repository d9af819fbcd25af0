"""The report: right numbers from the right seeds, broken inputs refused, and a page that a browser draws in full."""

import csv
import dataclasses
import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked import python

from kernels.errors import UserError
from pipeline import config as configuration
from pipeline import document, figures, report, results

CHROMIUM = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--enable-logging=stderr", "--v=0",
    "--host-resolver-rules=MAP * ~NOTFOUND",
]  # fmt: skip
SCREENSHOTS = configuration.ROOT / "build" / "screenshots"  # kept there, to be looked at
PLOTS = {
    "return-steps", "return-wall-clock", "evaluation-return", "time-by-phase", "approx-kl", "clip-fraction",
    "clip-fraction-after", "value-loss", "entropy", "explained-variance", "policy-loss", "grad-norm", "learning-rate",
}  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Artifacts like those of the stages
# ---------------------------------------------------------------------------------------------------------------------


def write_artifacts(
    root: Path, seeds: tuple[int, ...], environment: str = "cartpole", iterations: int = 120, gap: float = 0.0
) -> configuration.Config:
    """Artifacts under `root` like a learning curve with noise; `gap`: share of iterations in which no episode ends."""
    config = configuration.load([f"env={environment}", "device=cpu", f"out={root / 'report'}"])
    for seed in seeds:
        one = dataclasses.replace(config, seed=seed)
        write_seed(root, one, np.random.default_rng(seed), iterations, gap)
    return dataclasses.replace(config, seeds=seeds)


def write_seed(
    root: Path, config: configuration.Config, noise: np.random.Generator, iterations: int, gap: float
) -> None:
    train, evaluate = root / "train" / f"seed-{config.seed}", root / "evaluate" / f"seed-{config.seed}"
    train.mkdir(parents=True)
    evaluate.mkdir(parents=True)
    low, high = {"cartpole": (22.0, 500.0), "pendulum": (-1250.0, -160.0)}[config.env.name]
    episodes = 100
    t = np.linspace(0.0, 1.0, iterations)
    learned = 1.0 / (1.0 + np.exp(-(t - noise.uniform(0.25, 0.45)) / 0.07))
    returns = low + (high - low) * learned * 0.97 + noise.normal(0, 0.04, iterations) * (high - low) * (0.2 + learned)
    if config.env.name == "cartpole":
        returns = np.clip(returns, 9.0, 500.0)
    noisy = lambda scale: np.exp(noise.normal(0.0, scale, iterations))  # noqa: E731
    step = (np.arange(iterations) + 1) * 2048
    columns: dict[str, np.ndarray] = {
        "step": step,
        "episode_return_mean": returns,
        "approx_kl": 0.008 * noisy(0.4) * (1.05 - t),
        "clip_fraction": 0.11 * noisy(0.25) * (1.1 - t),
        "value_loss": 0.5 * abs(high - low) * (0.05 + learned * (1 - learned)) * noisy(0.3),
        "policy_loss": -0.006 * noisy(0.5),
        "entropy": 0.69 - 0.25 * t**0.7 + noise.normal(0, 0.006, iterations),
        "explained_variance": np.clip(1 - 1.2 * np.exp(-6 * t) + noise.normal(0, 0.05, iterations), -1, 1),
        "grad_norm": 0.4 * noisy(0.3),
        "learning_rate": config.ppo.learning_rate * (1 - t * (iterations - 1) / iterations),
        "clip_fraction_after": 0.06 * noisy(0.25) * (1.1 - t),
    }
    text = {name: [repr(value) for value in values.tolist()] for name, values in columns.items()}
    text["episode_return_mean"] = ["" if noise.uniform() < gap else cell for cell in text["episode_return_mean"]]
    write_csv(train / "curve.csv", text)
    pace = noise.uniform(0.045, 0.06)
    wall = np.cumsum(pace * np.exp(noise.normal(0, 0.1, iterations)))
    write_csv(train / "timing.csv", {"step": text["step"], "wall_s": [repr(value) for value in wall.tolist()]})

    total = float(wall[-1]) + 0.05
    shares = {
        "env_step": 0.07,
        "transfer": 0.005,
        "rollout_forward": 0.24,
        "advantage": 0.02,
        "minibatch_update": 0.6,
        "logging": 0.02,
    }
    phases = {name: share * total for name, share in shares.items()}
    phases["other"] = total - sum(phases.values())
    write_json(train / "profile.json", {**phases, "wall": total, "steps_per_second": int(step[-1]) / total})

    manifest = {
        "format": 1,
        "sha256": f"{noise.integers(2**63):016x}" * 4,
        "params_sha256": f"{noise.integers(2**63):016x}" * 4,
        "initial_params_sha256": "0" * 64,
        "step": int(step[-1]),
        "policy_version": iterations,
        "config": {
            key: value
            for key, value in configuration.to_dict(config).items()
            if key in ("env", "policy", "ppo", "seed")
        }
        | {"device": "cpu"},
        "config_sha256": configuration.sha256(config),
        "env_spec": {
            "name": config.env.name,
            "version": 1,
            "max_episode_steps": config.env.max_episode_steps,
            "reward_range": [1.0, 1.0] if config.env.name == "cartpole" else [-16.2736044, 0.0],
        },
        "env_spec_sha256": "e" * 64,
        "seeds": {"run_seed": config.seed, "split": "train", "environments": config.ppo.num_envs, "episodes": 4210},
        "path": "general",
        "parent": None,
    }
    write_json(train / "checkpoint.json", manifest)

    initial = low + abs(noise.normal(0, 0.05, episodes)) * abs(high - low)
    final = high - abs(noise.normal(0, 0.05, episodes)) * abs(high - low) * (noise.uniform(size=episodes) < 0.3)
    if config.env.name == "cartpole":
        initial, final = np.round(initial), np.round(final)
    rows = [("initial", k, value) for k, value in enumerate(initial.tolist())]
    rows += [("final", k, value) for k, value in enumerate(final.tolist())]
    ended = ["truncated" if value >= 500 or value < 0 else "terminated" for _, _, value in rows]
    write_csv(
        evaluate / "episodes.csv",
        {
            "policy": [policy for policy, _, _ in rows],
            "seed": [str(k) for _, k, _ in rows],
            "return": [repr(value) for _, _, value in rows],
            "length": [str(int(abs(value))) for _, _, value in rows],
            "end": ended,
        },
    )
    write_json(
        evaluate / "metrics.json",
        {
            "env": config.env.name,
            "run_seed": config.seed,
            "split": "held_out",
            "episodes": episodes,
            "deterministic": True,
            "checkpoint_sha256": manifest["sha256"],
            "step": manifest["step"],
            "return_mean": final.mean(),
            "return_std": final.std(),
            "return_median": float(np.median(final)),
            "length_mean": float(np.abs(final).mean()),
            "initial_return_mean": initial.mean(),
            "improvement_mean": (final - initial).mean(),
            "improved_fraction": float((final > initial).mean()),
        },
    )


def write_csv(path: Path, columns: dict[str, list[str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def change_json(path: Path, **values: Any) -> None:
    write_json(path, json.loads(path.read_text()) | values)


def change_text(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, configuration.Config]:
    """A root with the artifacts of three seeds, and their report."""
    root = tmp_path_factory.mktemp("artifacts")
    config = write_artifacts(root, (1, 2, 3))
    report.run(config)
    return root, config


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes nearly all of the stage's time; tests of numbers and files do without."""
    monkeypatch.setattr(figures, "svg", lambda spec: f"<svg >{json.dumps(spec)}</svg>")


# ---------------------------------------------------------------------------------------------------------------------
# Numbers
# ---------------------------------------------------------------------------------------------------------------------


def test_headline_is_recomputed_from_the_episodes(written: tuple[Path, configuration.Config]) -> None:
    root, _ = written
    finals, gains = [], []
    for seed in (1, 2, 3):
        rows = list(csv.DictReader((root / f"evaluate/seed-{seed}/episodes.csv").open()))
        value = {
            policy: np.array([float(row["return"]) for row in rows if row["policy"] == policy])
            for policy in ("initial", "final")
        }
        finals.append(value["final"].mean())
        gains.append((value["final"] - value["initial"]).mean())
    metrics = json.loads((root / "report/metrics.json").read_text())
    for name, means in {"return": finals, "improvement": gains}.items():
        half = 4.302653 * np.std(means, ddof=1) / np.sqrt(3)  # t(2, 0.975)
        found = metrics[name]
        assert found["n"] == 3
        assert found["mean"] == pytest.approx(np.mean(means))
        assert (found["low"], found["high"]) == pytest.approx((np.mean(means) - half, np.mean(means) + half), rel=1e-6)
    text = (root / "report/report.md").read_text()
    assert f"**{np.mean(finals):,.1f}**" in text
    assert "300 of 300 episode pairs" in text
    assert "n = 3 training seeds" in text


@pytest.mark.usefixtures("undrawn")
def test_only_the_configured_seeds_are_read(written: tuple[Path, configuration.Config]) -> None:
    """DVC leaves the folders of a seed that was taken out of the configuration; they must not be mixed in."""
    root, config = written
    report.run(dataclasses.replace(config, seeds=(1, 3), out=str(root / "two")))
    metrics = json.loads((root / "two/metrics.json").read_text())
    assert sorted(metrics["seeds"]) == ["1", "3"]
    assert metrics["return"]["n"] == 2
    assert metrics["improvement"]["pairs"] == 200
    assert "seed 2" not in (root / "two/figures/return-steps.svg").read_text()


@pytest.mark.usefixtures("undrawn")
def test_metrics_hold_no_clock_and_are_strict_json(written: tuple[Path, configuration.Config], tmp_path: Path) -> None:
    """Other wall-clock figures, the same metrics.json; the numbers in it are finite."""
    root, config = written
    shutil.copytree(root, tmp_path / "again")
    for seed in config.seeds:
        train = tmp_path / f"again/train/seed-{seed}"
        profile = json.loads((train / "profile.json").read_text())
        change_json(train / "profile.json", **{name: 2 * value for name, value in profile.items()})
        rows = (train / "timing.csv").read_text().splitlines()
        slower = [f"{step},{2 * float(wall)!r}" for step, wall in (row.split(",") for row in rows[1:])]
        (train / "timing.csv").write_text("\n".join([rows[0], *slower]) + "\n")
    report.run(dataclasses.replace(config, out=str(tmp_path / "again/report")))
    assert (tmp_path / "again/report/metrics.json").read_bytes() == (root / "report/metrics.json").read_bytes()

    def refuse(text: str) -> None:
        raise AssertionError(text)

    json.loads((root / "report/metrics.json").read_text(), parse_constant=refuse)


def test_phases_add_up_to_the_wall(written: tuple[Path, configuration.Config]) -> None:
    root, config = written
    found = results.read_seed(root, config.seeds[0])
    spec = figures.phases({1: {phase: found.profile[phase] for phase in results.PHASES}})
    assert sum(row["seconds"] for row in spec["data"]["values"]) == pytest.approx(found.profile["wall"])


@pytest.mark.usefixtures("undrawn")
def test_one_seed_says_that_it_is_one(tmp_path: Path) -> None:
    report.run(write_artifacts(tmp_path, (4,), iterations=20))
    metrics = json.loads((tmp_path / "report/metrics.json").read_text())
    assert (metrics["return"]["low"], metrics["return"]["n"], metrics["return"]["method"]) == (None, 1, "none")
    text = (tmp_path / "report/report.md").read_text()
    assert "n = 1 training seed: no interval" in text
    assert "One seed says nothing about the next" in text
    assert "Yes, training improved" not in text


def test_worse_and_undecided_policies_are_called_so(written: tuple[Path, configuration.Config]) -> None:
    root, config = written
    summary = report.summarize([results.read_seed(root, seed) for seed in config.seeds])
    for low, high, words in [
        (-9.0, -1.0, "No, training made the policy worse"),
        (-1.0, 9.0, "No improvement is shown"),
    ]:
        gain = summary["improvement"] | {"low": low, "high": high}
        assert report._verdict(summary | {"improvement": gain}).startswith(words)


def test_an_interval_beyond_the_ceiling_is_explained() -> None:
    assert report.highest_return({"reward_range": [1.0, 1.0], "max_episode_steps": 500}) == 500.0
    assert report.highest_return({"reward_range": [-16.3, 0.0], "max_episode_steps": 200}) == 0.0
    assert report.highest_return({"reward_range": ["-inf", "inf"], "max_episode_steps": 200}) is None
    assert report.highest_return({}) is None


@pytest.mark.parametrize(
    ("share", "text"), [(1.0, "100.0%"), (0.99999, "> 99.9%"), (0.00001, "< 0.1%"), (0.0, "0.0%"), (0.5, "50.0%")]
)
def test_shares_are_never_rounded_to_all_or_none(share: float, text: str) -> None:
    assert report._percent(share) == text


def test_long_curves_are_averaged_in_groups_and_gaps_are_left_out() -> None:
    x = np.arange(1000.0)
    y = np.where(x % 2 == 0, x, np.nan)
    drawn = figures._grouped(figures.Curve(1, x, y), 4)
    assert drawn.x.size == 250
    np.testing.assert_allclose(drawn.y[:2], [1.0, 5.0])  # of 0 and 2, of 4 and 6
    np.testing.assert_allclose(drawn.x[:2], [1.0, 5.0])


# ---------------------------------------------------------------------------------------------------------------------
# Inputs that are refused
# ---------------------------------------------------------------------------------------------------------------------

FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no evaluation": (
        lambda r: shutil.rmtree(r / "evaluate/seed-2"),
        r"wanted the file .*seed-2/metrics.json; found none",
    ),
    "no training": (
        lambda r: shutil.rmtree(r / "train/seed-2"),
        r"wanted the file .*seed-2/checkpoint.json; found none",
    ),
    "another checkpoint": (
        lambda r: change_json(r / "evaluate/seed-2/metrics.json", checkpoint_sha256="a" * 64),
        r"seed-2/metrics.json: wanted checkpoint_sha256 \w+; found a{60}",
    ),
    "another step": (lambda r: change_json(r / "evaluate/seed-2/metrics.json", step=7), "wanted step .*; found 7"),
    "another run seed": (
        lambda r: change_json(r / "evaluate/seed-2/metrics.json", run_seed=1),
        "wanted run_seed 2; found 1",
    ),
    "a missing column": (
        lambda r: change_text(r / "train/seed-2/curve.csv", "approx_kl", "kl"),
        "curve.csv: wanted the column approx_kl; found step",
    ),
    "NaN in a curve": (
        lambda r: set_cell(r / "train/seed-2/curve.csv", 4, "entropy", "nan"),
        "curve.csv: wanted a finite entropy in line 6; found 'nan'",
    ),
    "NaN in a return": (
        lambda r: set_cell(r / "evaluate/seed-2/episodes.csv", 0, "return", "nan"),
        "episodes.csv: wanted a finite return in line 2; found 'nan'",
    ),
    "NaN in metrics": (
        lambda r: change_json(r / "evaluate/seed-2/metrics.json", return_mean=float("nan")),
        "metrics.json: wanted finite numbers; found NaN",
    ),
    "means unlike the episodes": (
        lambda r: change_json(r / "evaluate/seed-2/metrics.json", return_mean=500.5),
        "wanted return_mean = .*, as in episodes.csv; found 500.5",
    ),
    "an episode too few": (
        lambda r: drop_last_line(r / "evaluate/seed-2/episodes.csv"),
        "wanted the same episodes in the same order for both policies",
    ),
    "another end": (
        lambda r: set_cell(r / "evaluate/seed-2/episodes.csv", 0, "end", "bored"),
        "wanted ends terminated or truncated; found 'bored'",
    ),
    "half a curve": (lambda r: drop_last_line(r / "train/seed-2/curve.csv"), "curve.csv: wanted the last step"),
    "half a timing": (lambda r: drop_last_line(r / "train/seed-2/timing.csv"), "timing.csv: wanted the 12 steps"),
    "a torn line": (
        lambda r: (r / "train/seed-2/curve.csv").open("a").write("7,8\n"),
        "curve.csv: wanted 11 cells in line 14; found 2",
    ),
    "an empty curve": (lambda r: (r / "train/seed-2/curve.csv").write_text(""), "found an empty file"),
    "phases that lose time": (
        lambda r: change_json(r / "train/seed-2/profile.json", minibatch_update=0.0),
        "profile.json: wanted phases that add up to wall",
    ),
    "broken JSON": (lambda r: (r / "train/seed-2/checkpoint.json").write_text("{"), "checkpoint.json: wanted JSON"),
    "another configuration": (
        lambda r: change_text(r / "train/seed-2/checkpoint.json", '"gamma": 0.9', '"gamma": 0.8'),
        "wanted the same ppo.gamma for all seeds; seed 1 has 0.9.*, seed 2 has 0.8",
    ),
    "another environment": (
        lambda r: change_json(r / "train/seed-2/checkpoint.json", env_spec_sha256="f" * 64),
        "wanted the same env_spec_sha256 for all seeds",
    ),
    "another split": (
        lambda r: change_json(r / "evaluate/seed-2/metrics.json", split="selection"),
        "wanted the same evaluation split for all seeds; seed 1 has held_out, seed 2 has selection",
    ),
}


def set_cell(path: Path, row: int, column: str, text: str) -> None:
    rows = list(csv.DictReader(path.read_text().splitlines()))
    rows[row][column] = text
    write_csv(path, {name: [each[name] for each in rows] for name in rows[0]})


def drop_last_line(path: Path) -> None:
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, configuration.Config]:
    root = tmp_path_factory.mktemp("sound")
    return root, write_artifacts(root, (1, 2, 3), iterations=12)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_input_is_one_line_and_nothing_is_written(
    fault: str, sound: tuple[Path, configuration.Config], tmp_path: Path
) -> None:
    root, config = sound
    shutil.copytree(root, tmp_path, dirs_exist_ok=True)
    plant, message = FAULTS[fault]
    plant(tmp_path)
    with pytest.raises(UserError, match=message) as raised:
        report.run(dataclasses.replace(config, out=str(tmp_path / "report")))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "report").exists()


def test_checkpoints_of_another_environment_are_refused(sound: tuple[Path, configuration.Config]) -> None:
    root, config = sound
    pendulum = configuration.load(["env=pendulum", f"out={root / 'report'}"])
    with pytest.raises(UserError, match="wanted checkpoints of pendulum; found cartpole"):
        report.run(dataclasses.replace(pendulum, seeds=config.seeds))


# ---------------------------------------------------------------------------------------------------------------------
# The files, and the page in a browser
# ---------------------------------------------------------------------------------------------------------------------


def test_every_figure_is_a_file_in_both_reports(written: tuple[Path, configuration.Config]) -> None:
    out = written[0] / "report"
    assert {path.stem for path in (out / "figures").iterdir()} == PLOTS
    assert set(re.findall(r"!\[.*?\]\(figures/(.*?)\.svg\)", (out / "report.md").read_text())) == PLOTS
    assert set(re.findall(r'<figure id="(.*?)">', (out / "report.html").read_text())) == PLOTS


@pytest.mark.usefixtures("undrawn")
def test_another_report_leaves_no_old_figure_and_no_temporary_file(sound: tuple[Path, configuration.Config]) -> None:
    root, config = sound
    out = root / "rewritten"
    (out / "figures").mkdir(parents=True)
    (out / "figures/old.svg").write_text("<svg/>")
    (out / "notes.txt").write_text("kept")
    report.run(dataclasses.replace(config, out=str(out)))
    names = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    files = {"report.md", "report.html", "metrics.json", "notes.txt"}
    assert names == files | {f"figures/{name}.svg" for name in PLOTS}


def test_two_processes_draw_the_same_bytes(written: tuple[Path, configuration.Config]) -> None:
    root, _ = written
    overrides = ["seeds=[1,2,3]", f"out={root / 'twin'}", "hydra.run.dir=.", "hydra.output_subdir=null"]
    quiet = ["hydra/job_logging=none", "hydra/hydra_logging=none"]
    python(["-m", "pipeline.report", *overrides, *quiet], configuration.ROOT).check_returncode()
    for path in sorted((root / "report").rglob("*")):
        if path.is_file():
            assert (root / "twin" / path.relative_to(root / "report")).read_bytes() == path.read_bytes(), path.name


def test_rounding_coordinates_leaves_axis_labels_alone() -> None:
    """Ticks 0.001 apart: labels rounded like coordinates would be told apart no more."""
    curve = figures.Curve(1, np.arange(20.0), np.linspace(0.001, 0.005, 20))
    labels = re.findall(r"<text[^>]*>(0\.\d+)</text>", figures.svg(figures.curves([curve], "x", "y")))
    assert {"0.001", "0.002", "0.003", "0.004", "0.005"} <= set(labels)
    assert len(labels) == len(set(labels))


def test_text_is_escaped() -> None:
    block = document.Paragraph("a < b & `<i>` **c**")
    assert "<p>a &lt; b &amp; <code>&lt;i&gt;</code> <strong>c</strong></p>" in document.to_html("<t>", "s", [block])
    assert "<title>&lt;t&gt;</title>" in document.to_html("<t>", "s", [block])
    assert "a\\|b" in document.to_markdown("t", "s", [document.Table(["x"], [["a|b"]], "l")])


MEASURE = """
const page = document.querySelector("iframe"), inside = page.contentDocument, root = inside.documentElement;
inside.querySelectorAll("details").forEach(fold => { fold.open = true; });
const scale = svg => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
const drawn = svg => [...svg.querySelectorAll("[class*=role-mark] path")]
  .filter(mark => { const box = mark.getBBox(); return box.width > 0 || box.height > 0; });
const inFrame = svg => { const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].every(text => { const box = text.getBoundingClientRect();
    return box.left >= frame.left - 1 && box.right <= frame.right + 1; }); };
const found = {
  width: root.clientWidth, scroll: root.scrollWidth,
  figures: Object.fromEntries([...inside.querySelectorAll("figure")].map(figure => {
    const svg = figure.querySelector("svg");
    return [figure.id, { marks: drawn(svg).length, font: 12 * scale(svg), inFrame: inFrame(svg) }]; })),
};
const answer = document.createElement("pre");
answer.id = "answer"; answer.textContent = JSON.stringify(found); answer.style.display = "none";
document.body.append(answer);
"""


def browse(page: str, width: int, height: int, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Show `page` in a frame `width` px wide (a window cannot be as narrow as a phone), its screenshot in `folder`.

    Returns what MEASURE found and the lines of the browser's console; every request to a host fails and is such a line.
    """
    if CHROMIUM is None:
        pytest.skip("no Chromium on PATH: the page was not looked at")
    frame = f'<iframe style="border:0;width:{width}px;height:{height}px" srcdoc="{html.escape(page)}"></iframe>'
    script = f"<script>addEventListener('load', () => {{ {MEASURE} }});</script>"
    shown = folder / f"shown-{width}.html"
    shown.write_text(f'<!doctype html><meta charset="utf-8"><body style="margin:0">{frame}{script}')
    places = [f"--user-data-dir={folder / f'profile-{width}'}", f"--screenshot={folder / f'report-{width}.png'}"]
    size = f"--window-size={width},{height}"
    done = subprocess.run(
        [CHROMIUM, *FLAGS, *places, size, "--dump-dom", shown.as_uri()], capture_output=True, text=True, timeout=60
    )
    answer = re.search(r'<pre id="answer".*?>(.*?)</pre>', done.stdout)
    assert answer, done.stderr
    assert (folder / f"report-{width}.png").stat().st_size > 10_000
    return json.loads(html.unescape(answer[1])), [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize(("width", "height"), [(1280, 3900), (390, 8200)])
def test_the_page_reads_well_in_a_browser(
    width: int, height: int, written: tuple[Path, configuration.Config], tmp_path: Path
) -> None:
    found, console = browse((written[0] / "report/report.html").read_text(), width, height, tmp_path)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    shutil.copy(tmp_path / f"report-{width}.png", SCREENSHOTS)
    assert console == []
    assert found["width"] == width
    assert found["scroll"] <= width, "the page scrolls sideways"
    assert set(found["figures"]) == PLOTS
    for name, figure in found["figures"].items():
        assert figure["marks"] >= 3, name
        assert figure["font"] >= 9.5, name
        assert figure["inFrame"], f"{name}: text is cut off"


def test_the_browser_check_bites(written: tuple[Path, configuration.Config], tmp_path: Path) -> None:
    """A picture from elsewhere is seen on the console, an empty plot and a wide table in the measurements."""
    page = (written[0] / "report/report.html").read_text()
    outside = '<img src="https://example.com/a.png" alt=""><div style="width:3000px">wide</div></main>'
    page = page.replace("</main>", outside).replace('class="mark-line role-mark', 'class="lost')
    found, console = browse(page, 390, 1000, tmp_path)
    assert any("example.com" in line for line in console)
    assert found["scroll"] > 390
    assert found["figures"]["entropy"]["marks"] < 3


def test_the_file_names_nothing_outside_itself(written: tuple[Path, configuration.Config]) -> None:
    page = (written[0] / "report/report.html").read_text()
    assert set(re.findall(r"https?://[^\s\"'<)]+", page)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert not re.search(r"<script|<link|@import|url\(|\ssrc=", page)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("seeds", "environment", "gap"),
    [(range(1, 11), "cartpole", 0.0), ((1, 2, 3), "pendulum", 0.5), ((1, 2), "cartpole", 1.0)],
)
def test_other_shapes_of_runs_have_no_hole(seeds: Sequence[int], environment: str, gap: float, tmp_path: Path) -> None:
    """Ten seeds, negative returns with gaps, and runs in which no episode ever ended."""
    report.run(write_artifacts(tmp_path, tuple(seeds), environment, 30, gap))
    text = (tmp_path / "report/report.md").read_text()
    assert ("hierarchical bootstrap" in text) == (len(seeds) >= 10)
    assert ("Iterations in which no episode ended" in text) == (gap == 0.5)
    assert ("No value for seed 1, 2" in text) == (gap == 1.0)
    assert not re.search(r"\bnan\b|NaN|Infinity", (tmp_path / "report/report.html").read_text())
