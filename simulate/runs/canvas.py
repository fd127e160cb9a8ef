"""Small plots of lines and bars, drawn with Pillow: a tenth of the time of importing matplotlib.

Everything is drawn at ``FINE`` times the size and reduced, which smooths the edges. Text is drawn
literally, in the font that matplotlib brings along.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont, ImageFont

FINE = 2
MOST_TICKS = 6
TITLE, TEXT, SMALL = 17, 15, 13
"""Sizes of text in pixels."""
INK, LIGHT = "#202020", "#d8d8d8"


@lru_cache
def _font(size: int) -> FreeTypeFont | ImageFont:
    from PIL import ImageFont

    found = find_spec("matplotlib")
    for place in [] if found is None else found.submodule_search_locations or []:
        path = Path(place) / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
        if path.exists():
            return ImageFont.truetype(path, FINE * size)
    return ImageFont.load_default(FINE * size)


def ticks(low: float, high: float) -> list[float]:
    """At most ``MOST_TICKS`` round values within a range."""
    if not low < high:
        return [low]
    power = 10.0 ** math.floor(math.log10((high - low) / MOST_TICKS))
    for step in (power, 2 * power, 5 * power, 10 * power):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < MOST_TICKS:
            return [step * number for number in range(first, last + 1)]
    raise AssertionError


class Canvas:
    """A white picture.

    Args:
        width: in pixels.
        height: in pixels.
    """

    def __init__(self, width: int, height: int) -> None:
        from PIL import Image, ImageDraw

        self._size = width, height
        self._image = Image.new("RGB", (FINE * width, FINE * height), "white")
        self._draw = ImageDraw.Draw(self._image)

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float = 1.0) -> None:
        """A line through points, in pixels from the upper left."""
        fine = [(FINE * x, FINE * y) for x, y in points]
        self._draw.line(fine, colour, round(FINE * width), joint="curve")

    def dot(self, x: float, y: float, colour: str, radius: float = 2.5) -> None:
        """A filled circle."""
        box = [FINE * value for value in (x - radius, y - radius, x + radius, y + radius)]
        self._draw.ellipse(box, colour)

    def box(self, left: float, top: float, right: float, bottom: float, colour: str) -> None:
        """A filled rectangle; none where it has no height."""
        if bottom > top:
            self._draw.rectangle([FINE * left, FINE * top, FINE * right, FINE * bottom], colour)

    def text(self, x: float, y: float, words: str, size: int = TEXT, anchor: str = "mm") -> None:
        """A line of text at Pillow's anchor: l, m, r and a, m, s."""
        self._draw.text((FINE * x, FINE * y), words, INK, _font(size), anchor)

    def slanted(self, x: float, y: float, words: str, angle: float, size: int = TEXT) -> None:
        """Text that ends at a point, turned by an angle in degrees; centred there at 90."""
        from PIL import Image, ImageDraw

        left, top, right, bottom = _font(size).getbbox(words)
        mask = Image.new("L", (max(1, math.ceil(right)), max(1, math.ceil(bottom))))
        ImageDraw.Draw(mask).text((0, 0), words, 255, _font(size))
        turned = mask.crop((math.floor(left), math.floor(top), *mask.size)).rotate(
            angle, Image.Resampling.BICUBIC, expand=True
        )
        wide, high = turned.size
        corner = (FINE * x - wide, FINE * y)
        if angle == 90:
            corner = FINE * x - wide / 2, FINE * y - high / 2
        self._image.paste(INK, (round(corner[0]), round(corner[1])), turned)

    def png(self) -> bytes:
        """The picture as the bytes of a PNG file."""
        from PIL import Image

        content = io.BytesIO()
        self._image.resize(self._size, Image.Resampling.BOX).save(content, "png")
        return content.getvalue()


def width_of(words: str, size: int = TEXT) -> float:
    """Width of a line of text in pixels."""
    return float(_font(size).getlength(words)) / FINE


class Panel:
    """Axes in a part of a canvas.

    Args:
        canvas: where it is drawn.
        place: left, top, right and bottom of the axes, in pixels.
        across: range of the horizontal axis.
        up: range of the vertical axis.
    """

    def __init__(
        self,
        canvas: Canvas,
        place: tuple[float, float, float, float],
        across: tuple[float, float],
        up: tuple[float, float],
    ) -> None:
        self._canvas, self._place, self._across, self._up = canvas, place, across, up

    def x(self, value: float) -> float:
        """Pixels of a value on the horizontal axis."""
        left, _, right, _ = self._place
        low, high = self._across
        return left + (right - left) * (value - low) / (high - low)

    def y(self, value: float) -> float:
        """Pixels of a value on the vertical axis."""
        _, top, _, bottom = self._place
        low, high = self._up
        return bottom - (bottom - top) * (value - low) / (high - low)

    def axes(self, title: str, *, grid: bool = False) -> None:
        """Title, left and lower line, and the values of the vertical axis."""
        canvas, (left, top, right, bottom) = self._canvas, self._place
        canvas.text(left, top - 8, title, TITLE, "ls")
        for value in ticks(*self._up):
            if grid:
                canvas.line([(left, self.y(value)), (right, self.y(value))], LIGHT)
            canvas.line([(left - 4, self.y(value)), (left, self.y(value))], INK)
            canvas.text(left - 7, self.y(value), f"{value:.6g}", TEXT, "rm")
        canvas.line([(left, top), (left, bottom), (right, bottom)], INK)

    def numbers_below(self, label: str, *, grid: bool = False) -> None:
        """Values of the horizontal axis, and its name."""
        canvas, (left, top, right, bottom) = self._canvas, self._place
        for value in ticks(*self._across):
            if grid:
                canvas.line([(self.x(value), top), (self.x(value), bottom)], LIGHT)
            canvas.line([(self.x(value), bottom), (self.x(value), bottom + 4)], INK)
            canvas.text(self.x(value), bottom + 7, f"{value:.6g}", TEXT, "ma")
        canvas.text((left + right) / 2, bottom + 28, label, TEXT, "ma")

    def names_below(self, names: Sequence[str], angle: float) -> None:
        """A name below each whole number, turned by an angle."""
        bottom = self._place[3]
        for number, name in enumerate(names):
            x = self.x(number)
            if angle:
                self._canvas.slanted(x + 6, bottom + 7, name, angle)
            else:
                self._canvas.text(x, bottom + 7, name, TEXT, "ma")

    def bar(self, number: int, value: float, width: float, colour: str, label: str = "") -> None:
        """A bar from zero with a label above it; a value above the range ends at the top."""
        top = self.y(min(value, self._up[1]))
        left, right = self.x(number - width / 2), self.x(number + width / 2)
        self._canvas.box(left, top, right, self.y(0.0), colour)
        if label:
            self._canvas.text((left + right) / 2, top - 3, label, SMALL, "ms")

    def curve(self, across: Sequence[float], up: Sequence[float], colour: str) -> None:
        """A line with dots; a value that is not finite interrupts it."""
        run: list[tuple[float, float]] = []
        for x, y in [*zip(across, up, strict=True), (0.0, math.nan)]:
            if math.isfinite(y):
                run.append((self.x(x), self.y(y)))
                self._canvas.dot(*run[-1], colour)
            elif run:
                self._canvas.line(run, colour, 1.5)
                run = []
