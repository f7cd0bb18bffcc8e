"""What the kernels of GPUs and TPUs ask of a call alike."""

from typing import TYPE_CHECKING

from flax_attn import platforms
from flax_attn.attention.normalizers import is_softmax
from flax_attn.attention.scores import DotProduct, as_dot_product

if TYPE_CHECKING:
    from flax_attn.attention.core import Call


def why_not_here(call: "Call", platform: str, device: str) -> str:
    """Tells why no kernel of a platform, whose devices are called `device`, fits a call at all."""
    if platforms.of(call.query) != platform:
        return f"the program is not for a {device}"
    if not platforms.uses_kernels():
        return "kernels are turned off"
    if not call.visible.heads or call.indices is not None or call.chunk_size is not None:
        return "the call has no heads, some queries only, or a chunk_size"
    return ""


def why_not_terms(call: "Call", terms: set[str]) -> str:
    """Tells what of a call a kernel with these terms for its limits cannot take."""
    if call.dropout_rate or call.visible.is_symbolic:
        return "it has dropout, or sizes that are not known"
    others = call.visible.limits - terms
    return f"the kernel has no terms for {', '.join(sorted(others))}" if others else ""


def constant_score(call: "Call") -> DotProduct | None:
    """Returns the dot product of a softmax call with known numbers; None for another call."""
    score = as_dot_product(call.score) if is_softmax(call.normalizer) else None
    is_known = score is not None and all(n is None or isinstance(n, float) for n in score)
    return score if is_known else None
