"""Pictures of environments: shapes in the environment's own units, y upward, drawn with soft edges."""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw

Point = tuple[float, float]

PAPER, INK, GREY = "#fafaf7", "#22303c", "#c9cfd4"
BLUE, ORANGE, GREEN, RED = "#2b6cb0", "#dd7a2b", "#3a9d6e", "#c8473d"
_FINER = 3  # drawn so many times larger, then made smaller: that softens the edges


class Picture:
    """A canvas.

    Args:
        x, y: the lowest and highest coordinate shown.
        width: pixels; the height follows from the coordinates.
        ground: its colour.
    """

    def __init__(self, x: Point, y: Point, width: int = 480, ground: str = PAPER) -> None:
        self._left, self._top, self._scale = x[0], y[1], _FINER * width / (x[1] - x[0])
        self.size = width, round(width * (y[1] - y[0]) / (x[1] - x[0]))
        self._image = Image.new("RGB", (self.size[0] * _FINER, self.size[1] * _FINER), ground)
        self._draw = ImageDraw.Draw(self._image)

    def polygon(self, points: Sequence[Point], colour: str) -> None:
        self._draw.polygon([self._pixel(*point) for point in points], fill=colour)

    def rectangle(self, low: Point, high: Point, colour: str, radius: float = 0.0) -> None:
        (left, bottom), (right, top) = self._pixel(*low), self._pixel(*high)
        if right >= left and bottom >= top:
            self._draw.rounded_rectangle((left, top, right, bottom), radius * self._scale, fill=colour)

    def circle(self, centre: Point, radius: float, colour: str) -> None:
        self._draw.circle(self._pixel(*centre), radius * self._scale, fill=colour)

    def line(self, points: Sequence[Point], colour: str, thickness: float) -> None:
        """A line with round ends and corners; the thickness is in the environment's units too."""
        pixels = [self._pixel(*point) for point in points]
        self._draw.line(pixels, fill=colour, width=max(1, round(thickness * self._scale)), joint="curve")
        for end in (points[0], points[-1]):
            self.circle(end, thickness / 2, colour)

    def array(self) -> np.ndarray:
        """(H, W, 3) uint8."""
        return np.asarray(self._image.resize(self.size, Image.Resampling.BOX))

    def _pixel(self, x: float, y: float) -> Point:
        return (x - self._left) * self._scale, (self._top - y) * self._scale
