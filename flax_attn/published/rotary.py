"""Rotary positions of published models: the frequencies and magnitudes that their options name."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from flax_attn.attention import scaled_frequencies
from flax_attn.published.folder import ModelConfig
from flax_attn.types import Options

Frequencies = tuple[float, ...]
Rotation = tuple[Frequencies, float]  # and what cosines and sines are multiplied by
# periods of families whose folders may leave it out, where it is not 10,000
PERIODS = {"olmo3": 500_000.0, "smollm3": 2_000_000.0}


def frequencies_of(
    config: ModelConfig, types: Sequence[str], width: int
) -> tuple[tuple[Frequencies, ...], tuple[float, ...]]:
    """Returns the frequencies and magnitude of each block, from either spelling of the options."""
    kind = config.content.get("model_type", "")
    rope = config.part("rope_parameters")
    is_scaling = not rope.content  # the older spelling, where olmo3 scales full blocks alone
    if is_scaling:
        rope = config.part("rope_scaling")
    theta = config.number("rotary_emb_base", PERIODS.get(str(kind), 10_000.0))
    theta = config.number("rope_theta", theta)
    rotations: dict[str, Rotation] = {}
    for block_type in dict.fromkeys(types):
        part, default, is_window = rope, theta, block_type == "sliding_attention"
        if block_type in rope.content:
            part = rope.part(block_type)
        elif is_window and (local := config.get("rope_local_base_freq", None)):
            part, default = ModelConfig({}, config.path), local
        elif is_window and is_scaling and kind == "olmo3":
            part = ModelConfig({}, config.path)
        part.unused("partial_rotary_factor factor original_max_position_embeddings")
        part.unused("mrope_section mrope_interleaved")  # of images; in texts all sections are alike
        name = part.choice("rope_type", ROTATIONS, part.choice("type", ROTATIONS, "default"))
        period = part.number("rope_theta", default)
        rotations[block_type] = ROTATIONS[name](config, part, width, period)
        part.check_all_known()
    config.unused("rope_local_base_freq original_max_position_embeddings")
    per_block = [rotations[block_type] for block_type in types]
    return tuple(own for own, _ in per_block), tuple(magnitude for _, magnitude in per_block)


def longest_of(config: ModelConfig) -> int:
    """Returns the number of positions that `frequencies_of` is right for."""
    longest = config.get("max_position_embeddings")
    rope = config.part("rope_parameters" if "rope_parameters" in config.content else "rope_scaling")
    is_long = "longrope" in (rope.content.get("rope_type"), rope.content.get("type"))
    return min(trained_length_of(config, rope), longest) if is_long else longest


def trained_length_of(config: ModelConfig, part: ModelConfig) -> int:
    """Returns the number of positions in training, before positions were scaled."""
    name = "original_max_position_embeddings"
    return config.get(name, part.get(name, config.get("max_position_embeddings")))


def plain(config: ModelConfig, part: ModelConfig, width: int, period: float) -> Rotation:
    return scaled_frequencies(width, 1.0, max_period=period), 1.0


def linear(config: ModelConfig, part: ModelConfig, width: int, period: float) -> Rotation:
    return scaled_frequencies(width, part.number("factor"), max_period=period), 1.0


def llama3(config: ModelConfig, part: ModelConfig, width: int, period: float) -> Rotation:
    scaling: Options = {"trained_length": part.get("original_max_position_embeddings")}
    scaling |= {"slow": part.number("low_freq_factor"), "fast": part.number("high_freq_factor")}
    return scaled_frequencies(width, part.number("factor"), max_period=period, **scaling), 1.0


def yarn(config: ModelConfig, part: ModelConfig, width: int, period: float) -> Rotation:
    """Computes frequencies of YaRN, between those that turn often and those that are slowed.

    A pair that turns `n` times in a text of training has the index `d log(L / 2 pi n) / 2 log(b)`.
    Up to the index of `beta_fast` turns pairs stay as they are, from that of `beta_slow` on they
    are slowed by the whole factor, and linearly between.

    Source: Peng et al. 2023 (arXiv:2309.00071), sections 3.2 to 3.4.
    """
    length = trained_length_of(config, part)
    factor = part.number("factor", config.get("max_position_embeddings") / length)
    turns = part.number("beta_fast", 32), part.number("beta_slow", 1)
    rotations = [math.log(length / (2 * math.pi * n)) for n in turns]
    low, high = (width * one / (2 * math.log(period)) for one in rotations)
    if part.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    high += 0.001 * (low == high)
    slowed = np.clip((np.arange(width // 2) - low) / (high - low), 0, 1)  # (d/2,)
    frequencies = np.array(scaled_frequencies(width, 1.0, max_period=period))  # (d/2,)
    frequencies *= 1 - slowed + slowed / factor
    above = lambda share: 1 + 0.1 * share * math.log(max(factor, 1))
    share, share_of_all = part.number("mscale", 0), part.number("mscale_all_dim", 0)
    default = above(share) / above(share_of_all) if share and share_of_all else above(1)
    return tuple(frequencies.tolist()), part.number("attention_factor", default)


def longrope(config: ModelConfig, part: ModelConfig, width: int, period: float) -> Rotation:
    """Computes frequencies of LongRoPE for texts that are no longer than those of training.

    Source: Ding et al. 2024 (arXiv:2402.13753).
    """
    length = trained_length_of(config, part)
    part.unused("long_factor")  # of longer texts, which the model is not given
    factor = part.number("factor", config.get("max_position_embeddings") / length)
    frequencies = np.array(scaled_frequencies(width, 1.0, max_period=period))  # (d/2,)
    frequencies /= np.array(part.get("short_factor"))
    default = math.sqrt(1 + math.log(max(factor, 1)) / math.log(length))
    return tuple(frequencies.tolist()), part.number("attention_factor", default)


# dynamic scaling changes texts alone that are longer than `max_position_embeddings`
ROTATIONS: dict[str, Callable[[ModelConfig, ModelConfig, int, float], Rotation]] = {
    "default": plain,
    "dynamic": plain,
    "linear": linear,
    "llama3": llama3,
    "yarn": yarn,
    "longrope": longrope,
}
