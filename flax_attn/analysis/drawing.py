"""What all pictures share: figures, colours, style, and how they are saved.

Figures are made without pyplot and without a backend, so a user's own plots stay as they are.
Colours are Okabe and Ito's, which the colour-blind can tell apart. What is white or black has a
light and a dark form: `on(DARK)`.
"""

import contextlib
import functools
import io
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal, NamedTuple, ParamSpec

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import (
    Colormap,
    FuncNorm,
    LinearSegmentedColormap,
    Normalize,
    PowerNorm,
    to_hex,
)
from matplotlib.figure import Figure as Figure
from matplotlib.text import Text

from flax_attn.analysis.token_weights import are_negative
from flax_attn.errors import escaped_lines
from flax_attn.files import replacing
from flax_attn.types import Options

BLUE, ORANGE, GREEN, PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
SKY, YELLOW, GREY = "#56B4E9", "#E69F00", "#888888"
CYCLE = (BLUE, ORANGE, YELLOW, SKY, GREY)  # green and pink are the shapes'
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))  # as many as colours of the cycle
STYLE: Options = {  # matplotlib types its keys as a union of all of their names
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "axes.titlesize": 11,
    "figure.titlesize": 11,
    "text.parse_math": False,  # a $ of a user's is a dollar, and begins no formula
}
# Publishers refuse fonts of type 3, and editors cannot change letters that are paths.
FONTS: Options = {"pdf.fonttype": 42, "ps.fonttype": 42, "svg.fonttype": "none"}
VECTOR = (".pdf", ".svg", ".eps", ".ps")


class Theme(NamedTuple):
    """The colours that depend on the ground of a picture, which is the colour of weight 0."""

    ink: str  # of text and lines
    quiet: str  # of what matters less
    heat: Colormap
    signed: Colormap  # the same above 0, and red below
    masked: Options
    settings: Options  # matplotlib's; on a light ground a user's own stay


def _theme(ink: str, quiet: str, heat: str, below: str, face: str, hatch: str) -> Theme:
    ground, *_ = colours = heat.split()
    both = LinearSegmentedColormap.from_list("signed weights", [*below.split()[::-1], *colours])
    inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    grounded = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    masked: Options = {"facecolor": face, "edgecolor": hatch, "hatch": "////", "linewidth": 0}
    settings: Options = dict.fromkeys(inked, ink) | dict.fromkeys(grounded, ground)
    colours = LinearSegmentedColormap.from_list("weights", colours)
    return Theme(ink, quiet, colours, both, masked, settings)


LIGHT_HEAT = "#ffffff #cfe1f2 #93c4de #4a97c9 #1764ab #08306b"
LIGHT_BELOW = "#fbd9d6 #f2aaa6 #dc6a70 #ae2440 #650a26"  # reds as light as the blues
DARK_HEAT = "#131416 #16334f #1d5a8c #3f8fc4 #8cc6ea #f2faff"
DARK_BELOW = "#4a1b26 #8a2b3d #c94a58 #f07a78 #ffaaa0"  # which do not end in the same white
LIGHT = _theme("#222222", "#666666", LIGHT_HEAT, LIGHT_BELOW, "#ececec", "#b4b4b4")
LIGHT = LIGHT._replace(settings={})
DARK = _theme("#e9e7e2", "#a3a29e", DARK_HEAT, DARK_BELOW, "#2b2d31", "#5d6067")
_CURRENT: ContextVar[Theme] = ContextVar("theme", default=LIGHT)


def theme() -> Theme:
    """Returns the theme that pictures are drawn in now."""
    return _CURRENT.get()


@contextlib.contextmanager
def on(chosen: Theme) -> Iterator[None]:
    """Draws in this theme."""
    token = _CURRENT.set(chosen)
    try:
        yield
    finally:
        _CURRENT.reset(token)


Scale = Literal["sqrt", "linear"]
Cmap = str | Colormap | None
LEAST_TOP = 8  # times the uniform weight, so that uniform weights are pale
TICKS = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)

Arguments = ParamSpec("Arguments")


class Picture(Figure):
    """A figure that a notebook shows without pyplot, and that keeps the style it was made in.

    Matplotlib makes some ticks and texts only when it draws, and reads the settings then. What an
    SVG or a font cannot hold is escaped in every text.
    """

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        FigureCanvasAgg(self)
        names: tuple[Any, ...] = (*STYLE, *DARK.settings)
        self._settings: Options = {name: matplotlib.rcParams[name] for name in names}

    def savefig(self, fname: Any, **settings: Any) -> None:
        """Saves the figure: in PDF, EPS and SVG with letters as text, and with images of 300 dpi.

        Matplotlib's settings change only within this call. `PdfPages` writes the fonts of all its
        pages when it is closed, so that its pages have to follow the user's settings.
        """
        if f".{settings.get('format') or fname}".endswith(VECTOR):
            settings.setdefault("dpi", 300)
        with matplotlib.rc_context({} if hasattr(fname, "savefig") else FONTS):
            super().savefig(fname, **settings)

    def draw(self, renderer) -> None:
        with matplotlib.rc_context(self._settings):
            for text in self.findobj(Text):
                text.set_text(escaped_lines(text.get_text()))  # pyright: ignore
            super().draw(renderer)

    def _repr_png_(self) -> bytes:
        """Returns the picture as PNG, which IPython and Jupyter call."""
        png = io.BytesIO()
        _write(self, png, format="png")
        return png.getvalue()


def styled(draw: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Draws with the sizes and lines of the project; a user's other settings stay."""

    @functools.wraps(draw)
    def wrapper(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        settings: dict[Any, Any] = STYLE | theme().settings
        with matplotlib.rc_context(settings):
            return draw(*args, **kwargs)

    return wrapper


def save(figure: Figure, path: Path) -> Path:
    """Writes the figure into a file; the end of its name decides the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial:
        _write(figure, partial, dpi=300 if path.suffix in VECTOR else 130)
    return path


def _write(figure: Figure, target: Path | io.BytesIO, **settings: Any) -> None:
    with quietly():
        figure.savefig(target, bbox_inches="tight", **settings)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Lets a letter that the font lacks be a box, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def scale_of(weights: np.ndarray, top: float | None = None) -> Options:
    """Returns where the scale of weights ends, and whether it has both signs.

    `top` is the end for weights that are not negative; None for the largest. Where any is negative
    the scale is symmetric about 0, and ends at the largest of either sign.
    """
    signed = are_negative(weights)
    if signed or top is None:
        top = float(np.nanmax(np.abs(weights), initial=0))
    return {"top": top, "signed": signed}


def heat_up_to(
    top: float, scale: Scale = "sqrt", cmap: Cmap = None, signed: bool = False
) -> tuple[Options, list[float]]:
    """Returns colours and ticks of a scale from 0 to `top`, or from `-top` if it is signed."""
    top = float(top) or 0.01  # all weights are 0
    least = 0.08 * top if scale == "linear" else 0.0  # the ticks nearer to 0 would overlap
    ticks = [tick for tick in TICKS if tick == 0 or least <= tick < 0.8 * top]
    # Queries run downwards from the top, as a matrix is printed. The scale is of square roots: on a
    # linear one a single full weight leaves many small ones pale. Cells are sharp where they are
    # larger than three pixels; smaller ones are averaged, so that no diagonal falls between pixels.
    theme_cmap = theme().signed if signed else theme().heat
    heat: Options = {"origin": "upper", "cmap": cmap or theme_cmap, "interpolation": "auto"}
    power = {"sqrt": 0.5, "linear": 1.0}[scale]
    if not signed:
        return heat | {"norm": PowerNorm(power, vmin=0, vmax=top)}, [*ticks, top]
    raised = [functools.partial(_raised, power=own) for own in (power, 1 / power)]
    above = [tick for tick in ticks if 0.1 * top <= tick < 0.6 * top][::2]  # half a bar has few
    norm = FuncNorm((raised[0], raised[1]), vmin=-top, vmax=top)
    return heat | {"norm": norm}, [-top, *(-tick for tick in above[::-1]), 0.0, *above, top]


def _raised(weights: np.ndarray, power: float) -> np.ndarray:
    return np.sign(weights) * np.abs(weights) ** power


def top_of(weights: np.ndarray) -> float:
    """Returns the end of the scale of `(q, k)`: the largest weight, or 8 times the uniform one."""
    if (scale := scale_of(weights))["signed"]:
        return scale["top"]
    return float(min(max(scale["top"], LEAST_TOP / weights.shape[-1]), 1))


def strength(weights: np.ndarray | float, count: int) -> np.ndarray:
    """Returns log(weight * count) / log(count), how far weights are above 1/count, from 0 to 1.

    Each doubling adds as much, so texts of any length compare. NaN stays NaN.
    """
    times = np.maximum(np.asarray(weights, float) * count, 1)
    return np.asarray(np.minimum(np.log(times) / np.log(max(count, 2)), 1))


def colour_bar(
    figure: Figure,
    top: float,
    scale: Scale = "sqrt",
    cmap: Cmap = None,
    signed: bool = False,
    label: str = "attention weight",
    **where: Any,
) -> Colorbar:
    """Draws the colour bar of `heat_up_to`; `where` goes to `Figure.colorbar`."""
    heat, ticks = heat_up_to(top, scale, cmap, signed)
    label += " (square-root scale)" * (scale == "sqrt")
    bar = figure.colorbar(ScalarMappable(heat["norm"], heat["cmap"]), label=label, **where)
    bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
    bar.ax.minorticks_off()
    return bar


def of_weight(weight: float, top: float = 1.0, signed: bool = False) -> tuple[str, str]:
    """Returns the colour of a weight as #rrggbb on a scale up to `top`, and that of text on it."""
    heat, _ = heat_up_to(top, signed=signed)
    colour = heat["cmap"](heat["norm"](weight))
    return to_hex(colour), on_colour(colour)


def strength_bar(figure: Figure, count: int | None, **where: Any) -> Colorbar:
    """Draws the colour bar of strengths among `count` keys, or among n if `count` is None."""
    bar = figure.colorbar(ScalarMappable(Normalize(0, 1), theme().heat), **where)
    if count is None:
        bar.set_ticks([0, 0.5, 1], labels=["1/n", "1/√n", "1"])
    else:
        first = 1 / count
        ticks = [first, *(tick for tick in TICKS if 1.7 * first < tick < 0.7), 1]
        labels = [f"{tick:.2g}" for tick in ticks]
        bar.set_ticks(strength(np.array(ticks), count).tolist(), labels=labels)
    bar.set_label("attention weight: no colour up to 1/n, the uniform weight")
    bar.ax.minorticks_off()
    return bar


def of_strength(weight: float, count: int) -> tuple[str, str]:
    """Returns the colours of a weight among `count`, as `of_weight` does."""
    colour = theme().heat(float(strength(weight, count)))
    return to_hex(colour), on_colour(colour)


def on_colour(colour: tuple[float, ...]) -> str:
    """Returns black or white, whichever has a contrast of 4.5 or more on a colour."""
    red, green, blue = (value**2.2 for value in colour[:3])
    return "white" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.179 else "black"


def frame(ax: Axes) -> None:
    """Draws all four sides of the axes, which end a matrix or an image."""
    ax.spines[:].set_visible(True)
