"""exp, log, tanh, sin and cos against float64, over a fine sweep of their arguments."""

from pathlib import Path

import numpy as np
import pytest
import reference
import torch
from conftest import Plant

from kernels.launcher import In, Kernel, Out, Size

PROBE = Kernel(
    "math_probe",
    [
        In("x", "float32", ("N",)),
        *(Out(name, "float32", ("N",)) for name in ("exp", "log", "sin", "cos", "tanh")),
        Out("lanes", "float32", (3, "N")),
        Out("normal", "float32", ("N", 2)),
        Size("N"),
    ],
    blocks=lambda size: -(-size["N"] // 4096),
)
PROBE.path = Path(__file__).with_name("math_probe.cu")

EXP_ULP, LOG_ULP, TANH_ULP, SIN_COS_ERROR = 1.1, 0.9, 5.0, 1e-7


def probe(x: np.ndarray) -> dict[str, np.ndarray]:
    outputs = [torch.empty(len(x)) for _ in range(5)] + [torch.empty(3, len(x)), torch.empty(len(x), 2)]
    PROBE(torch.from_numpy(x), *outputs)
    names = ("exp", "log", "sin", "cos", "tanh", "lanes", "normal")
    return dict(zip(names, (o.numpy() for o in outputs), strict=True))


def floats(low: float, high: float, stride: int) -> np.ndarray:
    """Every stride-th float32 of [low, high], 0 < low, and both ends."""
    first, last = (int(np.float32(v).view(np.int32)) for v in (low, high))
    return np.append(np.arange(first, last, stride, dtype=np.int32).view(np.float32), np.float32(high))


def both_signs(x: np.ndarray) -> np.ndarray:
    return np.concatenate([-x, np.zeros(1, np.float32), x])


def worst_ulp(got: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in units of the last place of the exact result."""
    return float((np.abs(got - exact) / np.spacing(np.abs(exact).astype(np.float32))).max())


def check_exp() -> float:
    x = both_signs(floats(1e-30, 87.3, 701))
    worst = worst_ulp(probe(x)["exp"], np.exp(x.astype(np.float64)))
    assert worst <= EXP_ULP
    return worst


def check_log() -> float:
    x = floats(2.0**-126, 3.4e38, 1009)
    worst = worst_ulp(probe(x)["log"], np.log(x.astype(np.float64)))
    assert worst <= LOG_ULP
    return worst


def check_tanh() -> float:
    """From the smallest denormal, whose tanh it is itself, to where tanh is 1 in float32, and beyond."""
    x = both_signs(floats(1e-45, 20.0, 701))
    worst = worst_ulp(probe(x)["tanh"], np.tanh(x.astype(np.float64)))
    assert worst <= TANH_ULP
    return worst


def check_sin_cos() -> tuple[float, float]:
    x = both_signs(floats(1e-30, 8000.0, 701))
    got, exact = probe(x), x.astype(np.float64)
    worst = tuple(float(np.abs(got[name] - getattr(np, name)(exact)).max()) for name in ("sin", "cos"))
    assert max(worst) <= SIN_COS_ERROR
    return worst


def test_worst_errors() -> None:
    (sin, cos), exp, log, tanh = check_sin_cos(), check_exp(), check_log(), check_tanh()
    ulp = f"exp {exp:.3f}, log {log:.3f}, tanh {tanh:.3f} ulp"
    print(f"\nworst errors: {ulp}, sin {sin:.2e}, cos {cos:.2e} absolute")


def test_exact_values() -> None:
    got = probe(np.array([0.0, 1.0], np.float32))
    assert (got["exp"][0], got["log"][1], got["sin"][0], got["cos"][0]) == (1.0, 0.0, 0.0, 1.0)


def test_sin_is_odd_cos_is_even_and_their_squares_add_to_1() -> None:
    x = floats(1e-3, 8000.0, 90_001)
    plus, minus = probe(x), probe(-x)
    assert (plus["sin"] == -minus["sin"]).all()
    assert (plus["cos"] == minus["cos"]).all()
    assert np.abs(plus["sin"].astype(np.float64) ** 2 + plus["cos"].astype(np.float64) ** 2 - 1).max() < 3e-7


def test_exp_stays_a_normal_number_and_nan_stays_nan() -> None:
    exp = probe(np.array([-np.inf, -1e30, -88.0, 89.0, np.inf, np.nan], np.float32))["exp"]
    assert np.isfinite(exp[:5]).all()
    assert (exp[:3] >= np.finfo(np.float32).tiny).all()
    assert np.isnan(exp[5])


def test_normals_at_the_edges_of_their_words() -> None:
    """From the smallest and the largest words come the largest normals, finite, and exactly 0."""
    words = np.array([0, 0xFF, 0x100, 0x7FFFFFFF, 0x80000000, 0xFFFFFF00, 0xFFFFFFFF], np.uint32)
    normal = probe(words.view(np.float32))["normal"]
    assert np.isfinite(normal).all()
    assert 5.5 < np.abs(normal).max() < 6.0
    pairs = np.stack([words, words[::-1]], axis=-1).astype(np.uint64)
    assert np.abs(normal - reference.normals(pairs, np.float64)).max() < 2e-6


def special() -> np.ndarray:
    """Signed zeros, denormals, infinities, NaN, and the edges of what is computed."""
    edges = [0.0, 1e-45, 1e-40, 1.1754942e-38, 1.1754944e-38, 4e-4, 7.9, 7.9000006, 88.37, 3.4e38, np.inf, np.nan]
    return both_signs(np.array(edges, np.float32))


def test_tanh_of_special_values() -> None:
    x = special()
    tanh = probe(x)["tanh"]
    assert np.isnan(tanh[np.isnan(x)]).all()
    assert (np.signbit(tanh) == np.signbit(x))[~np.isnan(x)].all()
    small = np.abs(x) < 1e-38  # zeros, with their signs, and denormals
    assert tanh[small].tobytes() == x[small].tobytes()
    assert (np.abs(tanh[np.abs(x) >= 7.9]) == np.abs(tanh).max(initial=0, where=~np.isnan(tanh))).all()
    assert 1 - np.abs(tanh[x == np.inf]) <= 4e-7


def test_tanh_is_odd_and_never_beyond_1() -> None:
    x = floats(1e-45, 30.0, 30_001)
    plus, minus = probe(x)["tanh"], probe(-x)["tanh"]
    assert (plus == -minus).all()
    assert plus.max() < 1


def test_a_lane_of_a_vector_has_the_bits_of_a_float() -> None:
    for x in (special(), both_signs(floats(1e-45, 3.4e38, 200_003)), *(np.float32(range(1, n)) for n in (2, 7, 34))):
        got = probe(x)
        for name, lanes in zip(("exp", "log", "tanh"), got["lanes"], strict=True):
            numbers = ~np.isnan(got[name])  # of NaN the sign and the payload are no one's
            assert (numbers == ~np.isnan(lanes)).all()
            assert got[name][numbers].tobytes() == lanes[numbers].tobytes(), name


FAULTS = {
    "exp: a coefficient": ("1.6666665459e-1f", "1.6666765459e-1f", check_exp),
    "exp: one float for ln 2": ("r = fused_multiply_add(n, 2.12194440e-4f, r);", "", check_exp),
    "log: a coefficient": ("3.3333331174e-1f", "3.3333431174e-1f", check_log),
    "log: the exponent off by one": ("as_int(offset) >> 23;", "(as_int(offset) >> 23) + 1;", check_log),
    "tanh: a coefficient": ("4162.1982421875f", "4162.4f", check_tanh),
    "tanh: saturation": ("clamp(x, -7.9f, 7.9f)", "clamp(x, -7.0f, 7.0f)", check_tanh),
    "tanh: the constant terms differ": ("1162951.625f);\n    return", "1162953.0f);\n    return", check_tanh),
    "sin: a coefficient": ("-1.6666654611e-1f", "-1.6666754611e-1f", check_sin_cos),
    "sin: one float for pi / 2": ("r = fused_multiply_add(n, -7.54978942e-08f, r);", "", check_sin_cos),
    "cos: the quadrants' sign": ("((quadrant + 1u) & 2u)", "(quadrant & 2u)", check_sin_cos),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_is_found(plant: Plant, fault: str) -> None:
    right, wrong, check = FAULTS[fault]
    plant(PROBE, right, wrong)
    with pytest.raises(AssertionError):
        check()
