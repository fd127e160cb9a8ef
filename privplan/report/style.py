"""How every picture looks: palette, panels with direct labels, and the bytes of an image file.

The colours are those of Okabe and Ito, which people without full colour vision tell apart, and
lighter ones of the same hues on dark ground. A panel is one set of axes with a text that says what
it shows; a picture is one panel or several.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privplan.errors import InputError
from privplan.visible import KEPT_LINES, in_html, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE = Path(__file__).with_name("pictures.mplstyle")
MOST_LETTERS = 24  # most letters of a group's name in a picture
FORMATS = ("png", "svg", "pdf")
DASHES = ("-", "--", ":", "-.")
WIDTH = 4.6  # inches of a panel: at this width its text is as large as that of a page on a phone
_GAP = 0.17  # inches between labels of lines


@dataclass(frozen=True)
class Theme:
    """Colours by use, for one ground."""

    ink: str  # text and marks that matter most
    quiet: str  # axes and their labels
    faint: str  # lines of the grid
    ground: str
    limit: str  # bars of budgets, and what stands for comparison
    good: str  # the first series, and what is within its budget
    bad: str  # the second series, and what is not
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
        return " ".join(
            f"--{one.name}: {getattr(self, one.name)};" for one in fields(self)
        )


LIGHT = Theme(
    "#1b1f24", "#59626d", "#e3e7eb", "#ffffff", "#c4ccd5",
    "#0072b2", "#c24e00", "#00805e", "#a3487a", "#7d6608", "#4a4fb5",
)  # fmt: skip
DARK = Theme(
    "#eceff3", "#a7b0ba", "#323840", "#14171b", "#515b66",
    "#56b4e9", "#ff9a52", "#3fcf9f", "#e59ac4", "#e2c84a", "#a9adff",
)  # fmt: skip


@dataclass(frozen=True)
class Panel:
    """One set of axes: a name for files, a title, what it shows in words, and how it is drawn."""

    name: str
    title: str
    alt: str
    draw: Callable[[Axes, Theme], None]
    height: float = 2.6  # inches

    def inline(self) -> str:
        """An SVG element for a page whose CSS declares the colours of a theme."""
        text = printable(picture([self], "svg", inline=True).decode(), KEPT_LINES)
        text = text[text.index("<svg") :]
        text = re.sub(
            r"<metadata>.*?</metadata>|(?<=<g) id=\"[^\"]*\"", "", text, flags=re.DOTALL
        )
        text = re.sub(
            r"(font(?:-family)?: [^;\"]*?)'[^;\"]*sans-serif", r"\1var(--font)", text
        )
        for one in fields(LIGHT):
            text = text.replace(getattr(LIGHT, one.name), f"var(--{one.name})")
        said = in_html(self.alt)
        sized = re.compile(r' (?:width|height)="[^"]*pt"')
        text = sized.sub("", text, 2).replace(
            "<svg", f'<svg role="img" aria-label="{said}"', 1
        )
        return re.sub(r"\n\s*", "\n", text)


@contextmanager
def undocumented() -> Iterator[None]:
    """Matplotlib, imported in this block, leaves the properties of artists out of docstrings.

    It inspects every class for them, a third of the time of its import; no drawing reads them.
    """
    from matplotlib import artist

    written = artist.kwdoc
    setattr(artist, "kwdoc", lambda one: "")  # noqa: B010
    try:
        yield
    finally:
        setattr(artist, "kwdoc", written)  # noqa: B010


@contextmanager
def styled(theme: Theme, **others: Any) -> Iterator[None]:
    """Matplotlib's settings in this block; all text is literal, without TeX in dollar signs."""
    with undocumented():
        from matplotlib import rc_context
        from matplotlib.figure import Figure  # noqa: F401
    ink, quiet, ground = ({f"{name}color": colour for name in names.split()} for colour, names in (
        (theme.ink, "text."),
        (theme.quiet, "axes.label axes.edge xtick. ytick."),
        (theme.ground, "axes.face figure.face savefig.face"),
    ))  # fmt: skip
    settings: Any = ink | quiet | ground | {"grid.color": theme.faint}
    settings |= others
    with rc_context(settings, STYLE):
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
    """Panels side by side, or in so many columns, as the bytes of an image file."""
    salt = "+".join(panel.name for panel in panels)
    fonts = {"svg.fonttype": "none" if inline else "path", "svg.hashsalt": salt}
    with styled(theme, **fonts):
        wide = min(columns or len(panels), len(panels))
        rows = [panels[at : at + wide] for at in range(0, len(panels), wide)]
        heights = [max(panel.height for panel in row) for row in rows]
        page = figure(WIDTH * wide, sum(heights) + (0.4 if title else 0.0))
        grid = page.subplots(len(rows), wide, squeeze=False, height_ratios=heights)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        for axes, panel in zip(grid.flat, panels, strict=False):
            if not inline:  # a page says it in its own text
                axes.set_title(panel.title)
            panel.draw(axes, theme)
        if title:
            page.suptitle(title, x=0.01, ha="left", fontsize=11, color=theme.quiet)
        _make_printable(page)
        return saved(page, form)


def _make_printable(page: Figure) -> None:
    """Escape what cannot be seen in titles and labels; names of rows are ``shortened``."""
    from matplotlib.text import Text

    for artist in page.findobj(Text):
        if isinstance(artist, Text):
            artist.set_text(printable(artist.get_text(), KEPT_LINES))


def figure(width: float, height: float) -> Figure:
    """An empty figure without a display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    page = Figure(figsize=(width, height))
    FigureCanvasAgg(page)
    return page


def saved(page: Figure, form: str) -> bytes:
    """The figure as the bytes of an image file; its layout is computed once."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06, wspace=0.04).execute(page)
    buffer = BytesIO()
    options: dict[str, Any] = {
        "png": {"pil_kwargs": {"compress_level": 6}},
        "svg": {"metadata": {"Date": None}},
    }
    page.savefig(buffer, format=form, **options.get(form, {}))
    return buffer.getvalue()


def picture_name(path: str) -> str:
    """The image format of a file name."""
    ending = Path(path).suffix.lower().lstrip(".")
    if ending not in FORMATS:
        raise InputError.one("plot", f"must end in .{', .'.join(FORMATS)}", path)
    return ending


def shortened(name: str, most: int = MOST_LETTERS) -> str:
    """The name, printable, with its middle left out where it is longer than so many letters."""
    name = printable(name)
    end = most // 3
    return name if len(name) <= most else f"{name[: most - end - 1]}…{name[-end:]}"


def name_rows(axes: Axes, names: Sequence[str], unit: str) -> None:
    """Names of rows from the top down, and the unit of their values."""
    axes.set_yticks(range(len(names)), [shortened(name) for name in names])
    axes.set_ylim(len(names) - 0.4, -0.6)  # the first on top
    axes.tick_params(axis="y", length=0, labelcolor=axes.title.get_color())
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(unit)


def name_lines(axes: Axes, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Names of lines beside their ends (x, y, name, colour), moved apart where they overlap."""
    low, high = (axes.transData.inverted().transform(axes.transAxes.transform((0, place)))[1]
                 for place in (0, 1))  # fmt: skip
    gap = _GAP / (0.72 * axes.get_figure(root=True).get_figheight())  # type: ignore[union-attr]
    into = axes.transData + axes.transAxes.inverted()
    order = sorted(
        (one for one in ends if math.isfinite(one[1])), key=lambda one: one[1]
    )
    wanted = [
        float(into.transform((x, min(max(y, low), high)))[1]) for x, y, _, _ in order
    ]
    places: list[float] = []
    for place in wanted:
        places.append(max(place, places[-1] + gap) if places else place)
    for at in reversed(range(len(places))):
        most = places[at + 1] - gap if at + 1 < len(places) else 1.02
        places[at] = min(places[at], most)
    for (x, y, name, colour), place, own in zip(order, places, wanted, strict=True):
        moved = abs(place - own) > gap / 3
        axes.annotate(
            name, (x, y), (1.03, place), textcoords="axes fraction", color=colour, va="center",
            fontsize=8.5, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.6} if moved else None,
        )  # fmt: skip


def by_factors(axes: Axes, values: Sequence[float], most: int = 5) -> None:
    """A logarithmic horizontal axis with some of the values as ticks."""
    axes.set_xscale("log")
    axes.minorticks_off()
    shown = values[:: math.ceil(len(values) / most) or 1]
    axes.set_xticks(
        shown, [f"{value:.4g}" if value < 1e4 else f"{value:,.0f}" for value in shown]
    )


def from_zero(axes: Axes, values: Sequence[float]) -> None:
    """A vertical axis from zero to above the largest value, so that no flat curve is cut off."""
    axes.set_ylim(0, 1.08 * max(values, default=0.0) or 1.0)


def with_room(axes: Axes, high: float, factor: float, low: float = 0.0) -> None:
    """A horizontal axis with ticks up to the largest value, and room for labels after it."""
    axes.set_xlim(low, low + factor * (high - low))
    axes.set_xticks([tick for tick in axes.get_xticks() if low <= tick <= high])


def beside(axes: Axes, x: float, y: float, text: str) -> None:
    """A label at the right of a place."""
    axes.annotate(
        text, (x, y), (7, 0), textcoords="offset points", va="center", fontsize=8.5
    )
