"""The report's plots: Vega-Lite specifications as plain dictionaries, rendered to SVG without a browser.

One width and one font size serve a file, a desktop column and a phone: a page scales the picture by its viewBox.
Colours are Okabe and Ito's, told apart by colour-blind readers. Text, axes and the mean are drawn in `INK`, which the
page's style sheet swaps in dark mode.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import vl_convert

from pipeline import statistics
from pipeline.statistics import Floats, Interval

Spec = dict[str, Any]

WIDTH = 420  # of the whole picture, px
HEIGHT = 190  # of the plotted area, px
POINTS = 400  # vertices of a line; longer curves are averaged in groups
INK = "#1f2328"
GRAY = "#8b929a"
SEED_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
PHASE_COLORS = ("#0072b2", "#56b4e9", "#009e73", "#f0e442", "#d55e00", "#cc79a7", GRAY)
POLICY_COLORS = {"initial": GRAY, "final": "#0072b2"}


@dataclass(frozen=True)
class Curve:
    """One seed's curve: `x` ascending, `y` NaN where nothing was measured."""

    seed: int
    x: Floats
    y: Floats


def svg(spec: Spec) -> str:
    """SVG text of a specification; the same bytes for the same specification and vl-convert version."""
    text = vl_convert.vegalite_to_svg({**spec, "config": _CONFIG})
    return re.sub(r'(?<= )(?:d|transform)="[^"]*"', _rounded, text)


def _rounded(attribute: re.Match[str]) -> str:
    """Coordinates to a hundredth of a pixel: half the size of the file."""
    return re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), attribute[0])


def group_size(curves: Sequence[Curve]) -> int:
    """How many consecutive iterations one drawn point averages."""
    return max(-(-len(curve.x) // POINTS) for curve in curves)


def curves(curves: Sequence[Curve], x_title: str, y_title: str) -> Spec:
    """A thin line for each seed, their mean, and a band from the lowest to the highest seed.

    Points without a value are left out and their neighbours joined. The band and the mean cover the part of the x axis
    that all seeds cover.
    """
    drawn = [_grouped(curve, group_size(curves)) for curve in curves]
    drawn = [curve for curve in drawn if curve.x.size]
    own_colors = len(curves) <= len(SEED_COLORS)
    label = {curve.seed: f"seed {curve.seed}" if own_colors else "one seed" for curve in curves}
    colors = dict(zip(dict.fromkeys(label.values()), SEED_COLORS if own_colors else [GRAY], strict=False))
    lines = [
        {"x": x, "y": y, "seed": curve.seed, "line": label[curve.seed]}
        for curve in drawn
        for x, y in zip(curve.x.tolist(), curve.y.tolist(), strict=True)
    ]
    y = {"field": "y", "type": "quantitative", "title": y_title, "scale": {"zero": False}, "axis": {"tickCount": 5}}
    x = {"field": "x", "type": "quantitative", "title": x_title, "axis": {"labelExpr": SHORT, "tickCount": 5}}
    color: Spec = {"field": "line", "type": "nominal", "title": None}
    layers: list[Spec] = [
        {
            "data": {"values": lines},
            "mark": {
                "type": "line",
                "strokeWidth": 1 if len(curves) > 1 else 1.6,
                "opacity": 0.75,
                "point": {"size": 5} if _dots(drawn) else False,
            },
            "encoding": {"x": x, "y": y, "color": color, "detail": {"field": "seed"}},
        }
    ]
    if len(curves) > 1 and len(drawn) == len(curves):
        grid, values = statistics.on_grid([c.x for c in drawn], [c.y for c in drawn], points=200)
        mean = f"mean of {len(curves)} seeds"
        colors[mean] = INK
        rows = zip(grid.tolist(), values.min(0).tolist(), values.max(0).tolist(), values.mean(0).tolist(), strict=True)
        band = [{"x": at, "low": low, "high": high, "y": middle, "line": mean} for at, low, high, middle in rows]
        area = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
        layers.insert(
            0, {"data": {"values": band}, "mark": {"type": "area", "color": GRAY, "opacity": 0.22}, "encoding": area}
        )
        layers.append(
            {
                "data": {"values": band},
                "mark": {"type": "line", "strokeWidth": 2.2},
                "encoding": {"x": x, "y": y, "color": color},
            }
        )
    color["scale"] = {"domain": list(colors), "range": list(colors.values())}
    color["legend"] = {"symbolType": "stroke", "symbolStrokeWidth": 2.5, "symbolOpacity": 1, "columns": 4}
    return {"width": WIDTH, "height": HEIGHT, "layer": layers}


def phases(seconds: Mapping[int, Mapping[str, float]]) -> Spec:
    """A stacked bar for each seed: the seconds of each phase, which add up to the run's wall time."""
    names = list(next(iter(seconds.values())))
    labels = [name.replace("_", " ") for name in names]
    rows = [
        {"seed": f"seed {seed}", "phase": name.replace("_", " "), "seconds": value, "order": order}
        for seed, parts in seconds.items()
        for order, (name, value) in enumerate(parts.items())
    ]
    return {
        "width": WIDTH,
        "height": {"step": 26},
        "data": {"values": rows},
        "mark": {"type": "bar", "height": {"band": 0.7}},
        "encoding": {
            "y": {"field": "seed", "type": "nominal", "title": None, "sort": [f"seed {seed}" for seed in seconds]},
            "x": {"field": "seconds", "type": "quantitative", "title": "wall-clock (s)", "axis": {"tickCount": 6}},
            "order": {"field": "order"},
            "color": {
                "field": "phase",
                "type": "nominal",
                "title": None,
                "scale": {"domain": labels, "range": list(PHASE_COLORS[: len(labels)])},
                "legend": {"columns": 4, "columnPadding": 8},
            },
        },
    }


def held_out(returns: Mapping[int, Mapping[str, Floats]], overall: Mapping[str, Interval], x_title: str) -> Spec:
    """Every episode's return as a tick, for each seed and policy; the interval over seeds below.

    `returns[seed][policy]`: returns (E,) of one policy's episodes; `overall[policy]`: the interval over training seeds.
    """
    total = "all seeds"
    order = [f"seed {seed}" for seed in returns] + ([total] if len(returns) > 1 else [])
    episodes, summaries, intervals = [], [], []
    for seed, policies in returns.items():
        for policy, values in policies.items():
            row: Spec = {"row": f"seed {seed}", "policy": policy}
            episodes += [{**row, "value": value} for value in values.tolist()]
            low, high = np.quantile(values, [0.25, 0.75]).tolist()
            summaries.append({**row, "value": float(values.mean()), "low": low, "high": high})
    for policy, found in overall.items():
        if found.low is not None:
            row = {"row": total, "policy": policy}
            intervals.append({**row, "value": found.mean, "low": found.low, "high": found.high})
    shared: Spec = {
        "y": {"field": "row", "type": "nominal", "title": None, "sort": order, "scale": {"paddingInner": 0.25}},
        "yOffset": {"field": "policy", "type": "nominal", "sort": list(POLICY_COLORS)},
        "color": {
            "field": "policy",
            "type": "nominal",
            "title": None,
            "scale": {"domain": list(POLICY_COLORS), "range": list(POLICY_COLORS.values())},
            "legend": {"symbolType": "square", "labelExpr": "datum.label + ' policy'", "symbolOpacity": 1},
        },
    }
    value = {
        "field": "value",
        "type": "quantitative",
        "title": x_title,
        "scale": {"zero": False},
        "axis": {"tickCount": 5},
    }
    span: Spec = {**shared, "x": {**value, "field": "low"}, "x2": {"field": "high"}}
    at: Spec = {**shared, "x": value}
    dot = {"filled": True, "opacity": 1, "stroke": "white", "strokeWidth": 1}
    layers: list[Spec] = [
        {
            "data": {"values": summaries},
            "mark": {"type": "bar", "size": 11, "opacity": 0.25},
            "encoding": span,
        },
        {
            "data": {"values": episodes},
            "mark": {"type": "tick", "thickness": 1, "opacity": 0.35, "size": 11},
            "encoding": at,
        },
        {"data": {"values": summaries}, "mark": {"type": "point", "size": 60, **dot}, "encoding": at},
    ]
    if intervals:
        layers += [
            {"data": {"values": intervals}, "mark": {"type": "rule", "strokeWidth": 2}, "encoding": span},
            *(
                {
                    "data": {"values": intervals},
                    "mark": {"type": "tick", "thickness": 2, "size": 9},
                    "encoding": {**shared, "x": {**value, "field": end}},
                }
                for end in ("low", "high")
            ),
            {
                "data": {"values": intervals},
                "mark": {"type": "point", "shape": "diamond", "size": 90, **dot},
                "encoding": at,
            },
        ]
    return {"width": WIDTH, "height": {"step": 17, "for": "offset"}, "layer": layers}


def _grouped(curve: Curve, size: int) -> Curve:
    """The curve with every `size` consecutive points averaged, and points without a value left out."""
    valid = np.isfinite(curve.y)
    group = (np.arange(len(curve.x)) // size)[valid]
    if not group.size:
        return Curve(curve.seed, curve.x[valid], curve.y[valid])
    _, index, count = np.unique(group, return_inverse=True, return_counts=True)
    x = np.bincount(index, weights=curve.x[valid]) / count
    return Curve(curve.seed, x, np.bincount(index, weights=curve.y[valid]) / count)


def _dots(curves: Sequence[Curve]) -> bool:
    """Whether single points need a mark of their own: a line of one or a few points is hard to see."""
    return any(curve.x.size < 15 for curve in curves)


SHORT = "datum.value < 1000 ? format(datum.value, '~g') : format(datum.value, '~s')"  # 0, 0.5, 50k, 1M
_CONFIG: Spec = {
    "autosize": {"type": "fit-x", "contains": "padding"},
    "aria": False,  # the page labels each figure; thousands of labelled marks help no reader
    "background": "white",
    "font": "Helvetica, Arial, sans-serif",
    "padding": {"left": 6, "top": 2, "right": 8, "bottom": 2},
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK,
        "titleColor": INK,
        "domainColor": GRAY,
        "tickColor": GRAY,
        "gridColor": "#e3e6e9",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelOverlap": True,
    },
    "axisY": {"domain": False, "ticks": False, "labelPadding": 6},
    "legend": {
        "orient": "top",
        "labelColor": INK,
        "labelFontSize": 12,
        "labelLimit": 200,
        "offset": 8,
        "columnPadding": 16,
    },
}
