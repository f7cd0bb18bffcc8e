"""What all pictures share: colours, style, and how they are saved.

Colours are Okabe and Ito's, which the colour-blind can tell apart.
"""

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.colors import PowerNorm, to_hex
from matplotlib.figure import Figure

from flax_attn.files import replacing

BLUE, ORANGE, GREEN, PINK, SKY, YELLOW, BLACK = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#222222"
CYCLE = (BLUE, ORANGE, YELLOW, SKY, "#666666")  # green and pink are the shapes'
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "axes.titlesize": 11,
}
# A square-root scale, for one full weight would leave the many small ones in the dark.
HEAT: dict[str, Any] = {"origin": "lower", "cmap": "viridis", "interpolation": "nearest", "norm": PowerNorm(0.5, vmin=0, vmax=1)}
TICKS = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)


def heat_up_to(top: float) -> tuple[dict[str, Any], list[float]]:
    """Colours and ticks of a scale that ends at the largest weight of a picture, for attention that is spread over many tokens."""
    top = min(max(top, 0.01), 1.0)
    return HEAT | {"norm": PowerNorm(0.5, vmin=0, vmax=top)}, [tick for tick in TICKS if tick < 0.9 * top] + [round(top, 2)]


def of_weight(weight: float, top: float = 1.0) -> tuple[str, str]:
    """The colour of a weight on a scale that ends at `top` as #rrggbb, and black or white for what is written on it."""
    colour = plt.get_cmap(HEAT["cmap"])(heat_up_to(top)[0]["norm"](weight))
    red, green, blue, _ = colour
    return to_hex(colour), "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.5 else "black"


def save(figure: Figure, path: Path) -> Path:
    """Writes the figure and closes it. Letters that the font lacks are boxes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(partial, dpi=130, bbox_inches="tight")
    plt.close(figure)
    return path


def styled(draw: Callable[..., Figure], **further: Any) -> Callable[..., Figure]:
    """Draws in the style of the project, whatever the user's own."""

    @functools.wraps(draw)
    def wrapper(*args, **kwargs) -> Figure:
        with plt.rc_context(STYLE | further):  # pyright: ignore
            return draw(*args, **kwargs)

    return wrapper


# For pictures with words of the user's, in which a $ is a dollar and begins no formula.
literal = functools.partial(styled, **{"text.parse_math": False})
