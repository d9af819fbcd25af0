"""`python tests/kernels/table.py`: writes docs/kernels.md, a row for each kernel that the gates go through.

The figures of NVRTC are those that test_nvrtc.py recorded in build/provenance/gpu-resources.txt.
"""

import sys
from collections.abc import Sized
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "envs")]

import test_adam  # noqa: E402
import test_advantage_shift  # noqa: E402
import test_breakout  # noqa: E402
import test_episode_seeds  # noqa: E402
import test_fma_peak  # noqa: E402
import test_gae  # noqa: E402
import test_global_norm  # noqa: E402
import test_grids  # noqa: E402
import test_gymnasium  # noqa: E402
import test_mlp  # noqa: E402
import test_muon  # noqa: E402
import test_orthogonal  # noqa: E402
import test_philox_words  # noqa: E402
import test_planted_dynamics  # noqa: E402
import test_ppo  # noqa: E402
import test_ppo_loss  # noqa: E402
import test_rollout  # noqa: E402
import test_sample  # noqa: E402
import test_sanitizers  # noqa: E402
import test_shuffle  # noqa: E402
import test_stopwatch  # noqa: E402
import test_summary  # noqa: E402
from cases import CASES  # noqa: E402

from kernels.launcher import Kernel  # noqa: E402

DOCUMENT = ROOT / "docs" / "kernels.md"
FIGURES = ROOT / "build" / "provenance" / "gpu-resources.txt"
NORM = test_global_norm.FAULTS.values()
# Kernel: its reference (in tests/reference.py where no other place is named), the mistakes that its tests plant.
PROOFS: dict[str, tuple[str, Sized]] = {
    "fma_peak": ("a geometric series", [*test_fma_peak.FAULTS, "a separate product"]),
    "stopwatch": ("the time between two calls", test_stopwatch.FAULTS),
    "philox_words": ("`philox`, vectors of Random123", test_philox_words.FAULTS),
    "episode_seeds": ("`episode_seeds`", test_episode_seeds.FAULTS),
    "sample-categorical": ("`sample_categorical`", test_sample.CATEGORICAL_FAULTS),
    "sample-gaussian": ("`sample_gaussian`", {**test_sample.GAUSSIAN_FAULTS, **test_sample.RAW_FAULTS}),
    "gae": ("`gae`, three steps by hand", test_gae.FAULTS),
    "ppo_loss-categorical": (
        "`ppo_loss`, torch's autograd",
        {**test_ppo_loss.FAULTS, **test_ppo_loss.CATEGORICAL_FAULTS},
    ),
    "ppo_loss-gaussian": ("`ppo_loss`, torch's autograd", test_ppo_loss.GAUSSIAN_FAULTS),
    "sum_partials": ("NumPy's sum", test_ppo_loss.SUM_FAULTS),
    "advantage_shift": ("`advantage_shift`", [*test_advantage_shift.FAULTS, "a minibatch of one"]),
    "squares": ("`global_norm`", [kernel for kernel, *_ in NORM if kernel.name == "squares"]),
    "clip_scale": ("`global_norm`", [kernel for kernel, *_ in NORM if kernel.name == "clip_scale"]),
    "adam": ("`adam`, torch.optim.Adam", test_adam.FAULTS),
    "muon": ("`muon`, the quintic on singular values", test_muon.FAULTS),
    "shuffle": ("`shuffle`, chi-square of uniformity", [*test_shuffle.FAULTS, "a walk that wraps"]),
    "orthogonal": ("`orthogonal`", test_orthogonal.FAULTS),
}


def planted(module: ModuleType, kernel: str) -> list[Any]:
    """The mistakes in a kernel that a module of tests plants: the triples (kernel, right, wrong) of its tables."""
    found: list[Any] = []
    for table in vars(module).values():
        for value in table.values() if isinstance(table, dict) else ():
            faults = value if isinstance(value, tuple) and value and isinstance(value[0], tuple) else (value,)
            found += [f for f in faults if isinstance(f, tuple) and isinstance(f[0], Kernel) and f[0].name == kernel]
    return found


for _name, _case in CASES.items():
    if _case.kernel.name.startswith("mlp_"):
        _mine = [*planted(test_mlp, _case.kernel.name), *planted(test_ppo, _case.kernel.name)]
        _environment = _name.removeprefix("mlp_rollout-")
        _mine += [fault for fault in test_rollout.FAULTS.values() if fault[0] == _environment]
        PROOFS[_name] = ("a float64 network" if _environment == _name else "single kernels, float64 replay", _mine)
for _name in ("rollout_sums", "summary"):
    PROOFS[_name] = ("`summary`, NumPy", [*planted(test_summary, _name), *planted(test_ppo, _name)])
for _name, _case in test_gymnasium.CASES.items():
    PROOFS[f"env_step-{_name}"] = (f"Gymnasium {_case.gymnasium}", test_planted_dynamics.STEP[_name])
    PROOFS[f"env_reset-{_name}"] = (f"Gymnasium {_case.gymnasium}", [test_planted_dynamics.START[_name]])
PROOFS["env_step-breakout"] = ("a slow game of sets, situations by hand", test_breakout.MISTAKES)
PROOFS["env_reset-breakout"] = ("a slow game of sets", test_breakout.START)
for _name in test_grids.GAMES:
    PROOFS[f"env_step-{_name}"] = ("a slow game of cells", test_grids.MISTAKES[_name])
    PROOFS[f"env_reset-{_name}"] = ("a slow game of cells", [test_grids.START[_name]])
PROOFS["env_step-cartpole_masked"] = ("CartPole's step", test_planted_dynamics.STEP["cartpole"])
PROOFS["env_reset-cartpole_masked"] = ("CartPole's reset", [test_planted_dynamics.START["cartpole"]])

HEAD = """# Every kernel and its proofs

Made by `python -m pytest tests/kernels/test_nvrtc.py && python tests/kernels/table.py`; `make test` runs every gate of
every row, skips none, and holds this page to have all rows.

- **Reference**: a function of tests/reference.py in float64, or what else is named. The error may be twice that of
  plain float32 NumPy, plus 4 ulp; integers are equal.
- **Mistakes**: put into the kernel's source one at a time, each seen to fail its test.
- **NVRTC**: registers / bytes spilled / bytes of stack / bytes of shared memory of a thread or block, by architecture.
- **Race**: one thread of the system for each CUDA thread under ThreadSanitizer, blocks of 1, 32 and 128 threads, the
  bits of the product; *n barriers*: each left out in turn, each seen as a race.
- **Memory**: AddressSanitizer and UndefinedBehaviorSanitizer with these numbers of rows: all but the most at 32
  threads, the fewest and the most at 128, the most at 1 too.
  An index out of bounds, a shift too far, an overflow and too little shared memory, put in, are seen by it.
- **Emulated**: launched as on CUDA (grid, block of so many threads, shared memory, packed parameters) on the emulated
  device, four lanes and the GPU's tiles, with these numbers of rows: the bits of the product, nothing written beside an
  array. Wrong launches of each kind, put in, are seen.

| kernel | reference | mistakes | NVRTC {architectures} | race | memory | emulated |
|---|---|---:|---|---|---|---|
"""


def document() -> str:
    """The whole page. KeyError: a kernel has no proof here, or no figures yet."""
    head, *lines = FIGURES.read_text().splitlines()
    figures = {name: "&emsp;".join(cells) for name, *cells in map(str.split, lines)}
    barriers = [name for name, *_ in test_sanitizers.BARRIERS]
    rows = []
    for name, case in CASES.items():
        reference, mistakes = PROOFS[name]
        count = barriers.count(name)
        race = f"passes, {count} barrier{'s' if count > 1 else ''}" if count else "passes"
        sizes = ", ".join(map(str, case.rows))
        gates = f"{race} | passes, {sizes} | {case.kernel.threads} threads, {sizes}"
        rows.append(f"| `{name}` | {reference} | {len(mistakes)} | {figures[name]} | {gates} |\n")
    return HEAD.format(architectures=", ".join(head.split()[1:])) + "".join(rows)


if __name__ == "__main__":
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(document())
    print(DOCUMENT.relative_to(ROOT))
