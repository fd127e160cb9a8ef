"""How every picture looks: palette, panels with direct labels, and image files.

The colours are those of Okabe and Ito, which people without full colour vision tell
apart, and lighter ones of the same hues on dark ground. A panel is one set of axes with
a text that says what it shows; a picture is one panel or several.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from privplan.errors import InputError
from privplan.visible import KEPT_LINES, in_html, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("pictures.mplstyle")
MOST_LETTERS = 24  # most letters of a group's name in a picture
FORMATS = ("png", "svg", "pdf")
MATPLOTLIB_RULE = "needs Matplotlib: pip install 'privplan[plots]'"
DASHES = ("-", "--", ":", "-.")

# Inches of a panel: at this width its text is as large as that of a page on a phone.
WIDTH = 4.6
_TITLE_HEIGHT = 0.4  # inches of the title above several panels
_LABEL_SIZE = 8.5  # points of a label beside marks
_GAP = 0.17  # inches between labels of lines
_AXES_SHARE = 0.72  # part of a figure's height that its axes have, about
_LABEL_LETTERS = 60  # of a line below an axis: more are wider than a panel
_TOP = 1.02  # of the axes: the last label may be a little above them

# Settings of Matplotlib that take a colour of a theme, without the word color.
_COLOURED_SETTINGS = {
    "ink": ("text.",),
    "quiet": ("axes.label", "axes.edge", "xtick.", "ytick."),
    "ground": ("axes.face", "figure.face", "savefig.face"),
}


@dataclass(frozen=True)
class Theme:
    """Colours by use, for one ground.

    Attributes:
        ink: text and marks that matter most.
        quiet: axes and their labels.
        faint: lines of the grid.
        ground: behind everything.
        limit: bars of budgets, and what stands for comparison.
        good: the first series, and what is within its budget.
        bad: the second series, and what is not.
        third: and so on: further series.
    """

    ink: str
    quiet: str
    faint: str
    ground: str
    limit: str
    good: str
    bad: str
    third: str
    fourth: str
    fifth: str
    sixth: str

    @property
    def series(self) -> tuple[str, ...]:
        """Colours of lines, in their order."""
        return (self.good, self.bad, self.third, self.fourth, self.fifth, self.sixth)

    def line(self, number: int) -> tuple[str, str]:
        """Colour and dashes of a line by its number."""
        count = len(self.series)
        return self.series[number % count], DASHES[number // count % len(DASHES)]

    def variables(self) -> str:
        """The colours as declarations of CSS."""
        names = [colour.name for colour in fields(self)]
        return " ".join(f"--{name}: {getattr(self, name)};" for name in names)


LIGHT = Theme(
    ink="#1b1f24",
    quiet="#59626d",
    faint="#e3e7eb",
    ground="#ffffff",
    limit="#c4ccd5",
    good="#0072b2",
    bad="#c24e00",
    third="#00805e",
    fourth="#a3487a",
    fifth="#7d6608",
    sixth="#4a4fb5",
)
DARK = Theme(
    ink="#eceff3",
    quiet="#a7b0ba",
    faint="#323840",
    ground="#14171b",
    limit="#515b66",
    good="#56b4e9",
    bad="#ff9a52",
    third="#3fcf9f",
    fourth="#e59ac4",
    fifth="#e2c84a",
    sixth="#a9adff",
)


@dataclass(frozen=True)
class Panel:
    """One set of axes.

    Attributes:
        name: for files.
        title: above the axes.
        alt: what it shows, in words.
        draw: draws it in the colours of a theme.
        height: inches.
    """

    name: str
    title: str
    alt: str
    draw: Callable[[Axes, Theme], None]
    height: float = 2.6

    def inline(self) -> str:
        """An SVG element for a page whose CSS declares the colours of a theme.

        Without Matplotlib it is a paragraph that says the same in words.
        """
        if not can_draw():
            return f"<p>{in_html(self.alt)} (A picture of it {MATPLOTLIB_RULE}.)</p>"
        text = printable(picture([self], "svg", inline=True).decode(), KEPT_LINES)
        text = text[text.index("<svg") :]

        # Names of groups of lines would be equal in several pictures of one page.
        text = re.sub(
            r"<metadata>.*?</metadata>|(?<=<g) id=\"[^\"]*\"", "", text, flags=re.DOTALL
        )
        text = re.sub(
            r"(font(?:-family)?: [^;\"]*?)'[^;\"]*sans-serif", r"\1var(--font)", text
        )
        for colour in fields(LIGHT):
            value = getattr(LIGHT, colour.name)
            text = text.replace(value, f"var(--{colour.name})")

        # The page decides how large the picture is, and a screen reader reads its text.
        text = re.sub(r' (?:width|height)="[^"]*pt"', "", text, count=2)
        label = f'<svg role="img" aria-label="{in_html(self.alt)}"'
        text = text.replace("<svg", label, 1)
        return re.sub(r"\n\s*", "\n", text)


def can_draw() -> bool:
    """Whether Matplotlib is installed; the plain installation does without."""
    return find_spec("matplotlib") is not None


def refuse_without_matplotlib(path: str) -> None:
    """Refuse a picture that cannot be drawn, before anything is computed for it.

    Args:
        path: of the picture, or of the folder that it would be in.

    Raises:
        InputError: when Matplotlib is not installed.
    """
    if not can_draw():
        raise InputError.one("plot", MATPLOTLIB_RULE, path)


@contextmanager
def undocumented() -> Iterator[None]:
    """Matplotlib, imported in this block, leaves properties out of docstrings.

    It inspects every class of artists for them, a third of the time of its import; no
    drawing reads them.
    """
    from matplotlib import artist

    written = artist.kwdoc
    setattr(artist, "kwdoc", lambda class_: "")  # noqa: B010
    try:
        yield
    finally:
        setattr(artist, "kwdoc", written)  # noqa: B010


@contextmanager
def styled(theme: Theme, **settings: Any) -> Iterator[None]:
    """Matplotlib's settings in this block; all text is literal, dollar signs, too.

    Args:
        theme: the colours.
        **settings: further settings of Matplotlib, by name.

    Raises:
        InputError: when Matplotlib is not installed.
    """
    refuse_without_matplotlib("a picture")
    with undocumented():
        from matplotlib import rc_context
        from matplotlib.figure import Figure  # noqa: F401
    colours: Any = {"grid.color": theme.faint}
    for name, coloured in _COLOURED_SETTINGS.items():
        for setting in coloured:
            colours[f"{setting}color"] = getattr(theme, name)
    with rc_context(colours | settings, STYLE):
        yield


def picture(
    panels: Sequence[Panel],
    form: str = "png",
    *,
    title: str = "",
    theme: Theme = LIGHT,
    columns: int | None = None,
    inline: bool = False,
) -> bytes:
    """Panels as the bytes of an image file.

    Args:
        panels: what is drawn.
        form: one of ``FORMATS``.
        title: above all panels.
        theme: the colours.
        columns: how many panels are side by side; all by default.
        inline: whether the picture is for a page, which has the titles in its own text.
    """
    # With a salt, equal panels have equal bytes.
    salt = "+".join(panel.name for panel in panels)
    fonts = {"svg.fonttype": "none" if inline else "path", "svg.hashsalt": salt}
    with styled(theme, **fonts):
        width = min(columns or len(panels), len(panels))
        heights = []
        for start in range(0, len(panels), width):
            row = panels[start : start + width]
            heights.append(max(panel.height for panel in row))
        title_height = _TITLE_HEIGHT if title else 0.0
        page = figure(WIDTH * width, sum(heights) + title_height)
        grid = page.subplots(len(heights), width, squeeze=False, height_ratios=heights)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        for axes, panel in zip(grid.flat, panels, strict=False):
            if not inline:
                axes.set_title(panel.title)
            panel.draw(axes, theme)
        if title:
            page.suptitle(title, x=0.01, ha="left", fontsize=11, color=theme.quiet)
        _make_printable(page)
        return saved(page, form)


def _make_printable(page: Figure) -> None:
    """Escape what cannot be seen in titles and labels; names are ``shortened``."""
    from matplotlib.text import Text

    for artist in page.findobj(Text):
        if isinstance(artist, Text):
            artist.set_text(printable(artist.get_text(), KEPT_LINES))


def figure(width: float, height: float) -> Figure:
    """An empty figure without a display; sizes are in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    page = Figure(figsize=(width, height))
    FigureCanvasAgg(page)
    return page


def saved(page: Figure, form: str) -> bytes:
    """The figure as the bytes of an image file; its layout is computed once."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06, wspace=0.04).execute(page)
    _keep_labels_inside(page)
    buffer = BytesIO()
    # A date would give equal pictures different bytes.
    options: dict[str, Any] = {
        "png": {"pil_kwargs": {"compress_level": 6}},
        "svg": {"metadata": {"Date": None}},
    }
    page.savefig(buffer, format=form, **options.get(form, {}))
    return buffer.getvalue()


def _keep_labels_inside(page: Figure) -> None:
    """Move labels of horizontal axes that would be cut at the edge of the page.

    They are centred on their axes, which names of rows push to one side, and the layout
    ignores their width.
    """
    width = page.bbox.width
    for axes in page.axes:
        label = axes.xaxis.label
        extent = label.get_window_extent()
        beyond = max(extent.x1 - width, 0.0) + min(extent.x0, 0.0)
        if label.get_text() and beyond:
            centre, _ = label.get_position()
            label.set_x(centre - beyond / axes.bbox.width)


def wrapped(words: str) -> str:
    """The label of an axis in lines that are no wider than a panel."""
    lines = []
    for line in words.split("\n"):
        lines += textwrap.wrap(line, _LABEL_LETTERS) or [""]
    return "\n".join(lines)


def picture_name(path: str) -> str:
    """The image format of a file name.

    Raises:
        InputError: when its ending is none of ``FORMATS``, or without Matplotlib.
    """
    ending = Path(path).suffix.lower().lstrip(".")
    if ending not in FORMATS:
        raise InputError.one("plot", f"must end in .{', .'.join(FORMATS)}", path)
    refuse_without_matplotlib(path)
    return ending


def shortened(name: str, letters: int = MOST_LETTERS) -> str:
    """The name, printable, with its middle left out where it has more letters."""
    name = printable(name)
    end = letters // 3
    if len(name) <= letters:
        return name
    return f"{name[: letters - end - 1]}…{name[-end:]}"


def name_rows(axes: Axes, names: Sequence[str], unit: str) -> None:
    """Names of rows from the top down, and the unit of their values."""
    axes.set_yticks(range(len(names)), [shortened(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)  # the first on top
    axes.tick_params(axis="y", length=0, labelcolor=axes.title.get_color())
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(unit)


class LineEnd(NamedTuple):
    """Where a line ends, and its name."""

    x: float
    y: float
    name: str
    colour: str


def name_lines(axes: Axes, ends: Sequence[LineEnd]) -> None:
    """Names of lines beside their ends, moved apart where they overlap."""
    visible = [end for end in ends if math.isfinite(end.y)]
    visible.sort(key=lambda end: end.y)
    page: Any = axes.get_figure(root=True)
    gap = _GAP / (_AXES_SHARE * page.get_figheight())
    heights = [_height_in(axes, end) for end in visible]
    places = _separated(heights, gap)
    for end, height, place in zip(visible, heights, places, strict=True):
        is_moved = abs(place - height) > gap / 3
        arrow = {"arrowstyle": "-", "color": end.colour, "lw": 0.6}
        axes.annotate(
            end.name,
            (end.x, end.y),
            (1.03, place),
            textcoords="axes fraction",
            color=end.colour,
            va="center",
            fontsize=_LABEL_SIZE,
            annotation_clip=False,
            arrowprops=arrow if is_moved else None,
        )


def _height_in(axes: Axes, end: LineEnd) -> float:
    """The height of an end as a part of that of the axes, from 0 to 1."""
    to_data = axes.transData.inverted()
    low = to_data.transform(axes.transAxes.transform((0, 0)))[1]
    high = to_data.transform(axes.transAxes.transform((0, 1)))[1]
    to_axes = axes.transData + axes.transAxes.inverted()
    return float(to_axes.transform((end.x, min(max(end.y, low), high)))[1])


def _separated(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights, moved so that neighbours differ by a gap at least.

    First upwards, each above the one before it; then down again from the top.
    """
    places: list[float] = []
    for height in heights:
        lowest = places[-1] + gap if places else height
        places.append(max(height, lowest))
    highest = _TOP
    for index in reversed(range(len(places))):
        places[index] = min(places[index], highest)
        highest = places[index] - gap
    return places


def by_factors(axes: Axes, values: Sequence[float], most_ticks: int = 5) -> None:
    """A logarithmic horizontal axis with some of the values as ticks."""
    axes.set_xscale("log")
    axes.minorticks_off()
    shown = values[:: math.ceil(len(values) / most_ticks) or 1]
    labels = [f"{value:.4g}" if value < 1e4 else f"{value:,.0f}" for value in shown]
    axes.set_xticks(shown, labels)


def from_zero(axes: Axes, values: Sequence[float]) -> None:
    """A vertical axis from zero to above the largest value, so that no curve is cut."""
    axes.set_ylim(0, 1.08 * max(values, default=0.0) or 1.0)


def with_room(axes: Axes, high: float, factor: float, low: float = 0.0) -> None:
    """A horizontal axis with ticks up to a value, and room for labels after it.

    Args:
        axes: whose axis it is.
        high: the largest value.
        factor: length of the axis over the distance of the values.
        low: where the axis begins.
    """
    # Where the largest value is none, as of what has no bound, any length will do.
    length = high - low or 1.0
    axes.set_xlim(low, low + factor * length)
    axes.set_xticks([tick for tick in axes.get_xticks() if low <= tick <= high])


def label_beside(axes: Axes, x: float, y: float, text: str) -> None:
    """A label at the right of a place."""
    axes.annotate(
        text,
        (x, y),
        (7, 0),
        textcoords="offset points",
        va="center",
        fontsize=_LABEL_SIZE,
    )
