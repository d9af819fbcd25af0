"""The benchmark's plot: where the time goes, and how speed and cost change with each number."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline import figures
from pipeline.figures import INK, PHASE_COLORS, SHORT, Spec
from pipeline.speed import TIMED

WIDTH, HEIGHT = 300, 160  # of one panel, px
BLUE = PHASE_COLORS[0]

Row = Mapping[str, Any]


def svg(trainings: Sequence[Row], sections: Mapping[str, Sequence[Row]]) -> str:
    """SVG text of all panels, two in a row; a section that was not measured has none."""
    panels = [_phases(trainings)]
    if "threads" in sections:
        panels.append(_speed(sections["threads"], "threads", "threads", logarithmic=False))
    if "environments" in sections:
        panels.append(_speed(sections["environments"], "num_envs", "environments", logarithmic=True))
    if "hidden" in sections:
        rows = [{**row, "width": row["hidden"][0]} for row in sections["hidden"]]
        panels.append(_speed(rows, "width", "width of the hidden layers", logarithmic=True))
        panels.append(_share(rows))
    if "steps" in sections:
        panels.append(_steps(sections["steps"]))
    own_legend = {"scale": {"color": "independent"}, "legend": {"color": "independent"}}
    spec: Spec = {"columns": 2, "concat": panels, "spacing": 30, "resolve": own_legend}
    return figures.svg({"autosize": {"type": "pad"}, **spec})


def _panel(title: str, values: Sequence[Row], layers: Sequence[Spec]) -> Spec:
    heading = {"text": title, "anchor": "start", "fontSize": 13, "fontWeight": "normal", "color": INK}
    return {"width": WIDTH, "height": HEIGHT, "title": heading, "data": {"values": values}, "layer": layers}


def _axis(field: str, title: str, **options: Any) -> Spec:
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "axis": {"tickCount": 5, "labelExpr": SHORT},
        **options,
    }


def _phases(rows: Sequence[Row]) -> Spec:
    """A bar for each training: the phases' shares of the wall."""
    names = [f"{row['env']} {row['num_envs']}×{row['num_steps']}" for row in rows]
    labels = [name.replace("_", " ") for name in TIMED]
    values = [
        {"training": training, "phase": labels[order], "share": row["phases"][name], "order": order}
        for training, row in zip(names, rows, strict=True)
        for order, name in enumerate(TIMED)
    ]
    color = {
        "field": "phase",
        "type": "nominal",
        "title": None,
        "scale": {"domain": labels, "range": list(PHASE_COLORS[: len(labels)])},
        "legend": {"columns": 3, "orient": "top", "labelFontSize": 11},
    }
    encoding = {
        "y": {"field": "training", "type": "nominal", "title": None, "sort": names},
        "x": {
            **_axis("share", "share of the wall"),
            "axis": {"format": "%", "tickCount": 5},
            "scale": {"domain": [0, 1]},
        },
        "order": {"field": "order"},
        "color": color,
    }
    bars = {"mark": {"type": "bar", "height": {"band": 0.6}}, "encoding": encoding}
    return _panel("Where the time goes", values, [bars])


def _speed(rows: Sequence[Row], field: str, title: str, logarithmic: bool) -> Spec:
    """Steps a second against one number, with the smallest and the largest of the rounds."""
    values = [
        {
            "x": row[field],
            "y": row["steps_per_second"],
            "low": row["steps_per_second_range"][0],
            "high": row["steps_per_second_range"][1],
        }
        for row in rows
    ]
    return _lines(f"Steps/s against {title}", values, title, "steps/s", logarithmic)


def _share(rows: Sequence[Row]) -> Spec:
    """The share of the processor's peak against the width of the network."""
    values = [
        {
            "x": row["width"],
            "y": row["update_peak_share"],
            "low": row["update_peak_share_range"][0],
            "high": row["update_peak_share_range"][1],
        }
        for row in rows
    ]
    title = "width of the hidden layers"
    return _lines("Update's share of the FMA peak", values, title, "share", logarithmic=True, percent=True)


def _lines(
    title: str, values: Sequence[Row], x_title: str, y_title: str, logarithmic: bool, percent: bool = False
) -> Spec:
    ticks = sorted({value["x"] for value in values})
    x = {
        **_axis("x", x_title),
        "axis": {"values": ticks, "format": ",d"},
        "scale": {"type": "log", "base": 2} if logarithmic else {"zero": False, "nice": False},
    }
    labels = {"format": "%"} if percent else {"labelExpr": SHORT}
    y = {"type": "quantitative", "title": y_title, "axis": {"tickCount": 5, **labels}, "scale": {"zero": True}}
    middle = {"x": x, "y": {**y, "field": "y"}}
    spread = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
    return _panel(
        title,
        values,
        [
            {"mark": {"type": "rule", "color": BLUE, "strokeWidth": 3, "opacity": 0.35}, "encoding": spread},
            {"mark": {"type": "line", "color": BLUE, "point": {"color": BLUE, "size": 40}}, "encoding": middle},
        ],
    )


def _steps(rows: Sequence[Row]) -> Spec:
    """Seconds of whole trainings against their steps, beside the line through zero and the shortest one."""
    slope = rows[0]["seconds"] / rows[0]["steps"]
    values = [{"x": row["steps"], "y": row["seconds"], "linear": slope * row["steps"]} for row in rows]
    x = _axis("x", "steps", scale={"zero": True})
    y = {"type": "quantitative", "title": "seconds", "axis": {"tickCount": 5}}
    line = {"type": "line", "color": INK, "strokeDash": [4, 4], "strokeWidth": 1}
    points = {"type": "point", "filled": True, "opacity": 1, "size": 60, "color": BLUE}
    return _panel(
        "Seconds against steps (dashed: linear)",
        values,
        [
            {"mark": line, "encoding": {"x": x, "y": {**y, "field": "linear"}}},
            {"mark": points, "encoding": {"x": x, "y": {**y, "field": "y"}}},
        ],
    )
