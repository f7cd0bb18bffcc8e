"""The families of published models: how the options and arrays of each become a model of ours.

A family is a function from options to a model, and a map from our names of layers to its names of
arrays. `fill` does the rest: PyTorch's kernels are `(out, in)`, ours are `(in, out)`, and those of
attention have an axis of heads. Half-split rotary becomes ours by a permutation of features.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax.core import FrozenDict
from jax.typing import DTypeLike

from flax_attn.errors import UsageError, one_line
from flax_attn.models.forward import Params
from flax_attn.published.folder import ModelConfig, StoredWeights, open_arrays, read_json
from flax_attn.published.modules import (
    ACTIVATIONS,
    AnyModel,
    Decoder,
    Encoder,
    EncoderDecoder,
    VisionTransformer,
)
from flax_attn.published.rotary import frequencies_of, longest_of
from flax_attn.types import Options, Tree

LINEAR = "linear_attention"
MOST_READ = 1_024  # tokens, unless more are asked for
ANY_LENGTH = 1 << 30  # of tokens: far ones share a bucket of distances
SIZES = "vocab_size max_position_embeddings hidden_size num_attention_heads num_hidden_layers"
SELF_ATTENTION = "attention/query self_attn.q_proj; attention/key self_attn.k_proj;"
SELF_ATTENTION += "attention/value self_attn.v_proj;"
EMBEDDINGS = "embedding embeddings.word_embeddings; positions embeddings.position_embeddings;"
EMBEDDINGS += "embedding_norm embeddings.LayerNorm;"


class Layout(NamedTuple):
    """How the arrays of a model differ from the usual.

    Attributes:
        names: of arrays by our names of layers, or of parameters. A number after a name is a part
            of its last axis, a `T` transposes it.
        turned: the number of features of queries and keys that rotary positions turn.
        shift: what is added to the scales of norms.
        factors: of arrays, by our names of layers, as numbers or for each feature.
        is_transposed: whether kernels are `(out, in)`.
        fused: of an array with several parts, the number of groups in its last axis, and the widths
            of the parts in each, by the name of its layer.
        first_position: the row of the first position in its table.
    """

    names: dict[str, str]
    turned: int = 0
    shift: float = 0.0
    factors: Mapping[str, float | np.ndarray] = {}
    is_transposed: bool = True
    fused: Mapping[str, tuple[int, Sequence[int]]] = {}
    first_position: int = 0


class Family(NamedTuple):
    """How models of a `model_type` are read.

    Attributes:
        build: the model, and the layout of its arrays.
        prefixes: what may stand before the names of arrays.
        ignored: ends of names of arrays that hold no parameter.
        classes: ends of names of classes of `transformers` that have no other head than ours.
    """

    build: Callable[[ModelConfig, StoredWeights], tuple[AnyModel, Layout]]
    prefixes: tuple[str, ...]
    ignored: tuple[str, ...]
    classes: tuple[str, ...]


def gpt2(config: ModelConfig, arrays: StoredWeights) -> tuple[AnyModel, Layout]:
    config.only(scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False)
    config.only(add_cross_attention=False, reorder_and_upcast_attn=False)
    config.unused("summary_activation summary_type summary_use_proj summary_proj_to_labels n_ctx")
    sizes = sizes_of(config, "vocab_size n_positions n_embd n_head n_layer")
    model = Decoder(
        **sizes,
        hidden_features=config.get("n_inner", 4 * sizes["features"]),
        activation=config.choice("activation_function", ACTIVATIONS, "gelu_new"),
        epsilon=config.number("layer_norm_epsilon", 1e-5),
        tied=config.get("tie_word_embeddings", True),
    )
    names = names_of(
        "embedding wte; position_table wpe; norm ln_f; unembedding/kernel lm_head.weight T",
        "h",
        "attention_norm ln_1; feed_forward_norm ln_2; attention/query attn.c_attn 0;"
        "attention/key attn.c_attn 1; attention/value attn.c_attn 2; attention/out attn.c_proj;"
        "feed_forward/hidden mlp.c_fc; feed_forward/out mlp.c_proj",
        range(model.num_blocks),
    )
    fused = {"c_attn": (1, [model.features] * 3)}
    return model, Layout(names, is_transposed=False, fused=fused)


def llama(config: ModelConfig, arrays: StoredWeights) -> tuple[AnyModel, Layout]:
    """Llama, Mistral, Qwen 2 and 3, Gemma 1 to 3, OLMo 2, and others of the same options."""
    kind = config.get("model_type")
    sizes = rotary_sizes_of(config)
    width = config.get("head_dim", sizes["features"] // sizes["num_heads"])
    is_gemma, is_olmo = kind.startswith("gemma"), kind in ("olmo2", "olmo3")
    has_outer_norms = kind in ("gemma2", "gemma3_text")
    is_hybrid = kind in HYBRIDS
    has = lambda name: any(own.endswith(f"self_attn.{name}") for own in arrays.files)
    config.only(mlp_bias=False, use_bidirectional_attention=False, use_qk_norm=True)
    # the arrays and the types of the blocks say it
    config.unused("attention_bias tie_word_embeddings _sliding_window_pattern")
    config.unused("sliding_window_pattern max_window_layers")
    activation = config.choice("hidden_act", ACTIVATIONS, "silu")
    if is_gemma:  # where both stand, this one is used
        activation = config.choice("hidden_activation", ACTIVATIONS, "gelu_pytorch_tanh")
    types = block_types(config, sizes["num_blocks"], is_hybrid)
    turned = width
    if is_hybrid or kind == "phi3":
        turned = rotary_features_of(config, width, 0.25 if is_hybrid else 1.0)
    window = config.get("sliding_window", 0)
    scale = config.number("query_pre_attn_scalar", float(width)) ** -0.5
    frequencies, magnitudes = frequencies_of(config, types, turned)
    query_key_norm = ("all" if is_olmo else "head") if has("q_norm.weight") else ""
    model = Decoder(
        **sizes,
        attention=" ".join("gated_delta" if one == LINEAR else "full" for one in types),
        head_features=width,
        rms=True,
        epsilon=config.number("rms_norm_eps", 1e-5 if is_olmo or kind == "phi3" else 1e-6),
        pre_norm=not is_olmo,
        output_norm=is_olmo or has_outer_norms,
        activation=activation,
        gated=True,
        query_bias=has("q_proj.bias"),
        out_bias=has("o_proj.bias"),
        hidden_bias=False,
        query_key_norm=query_key_norm,
        scale=scale,
        softcap=config.get("attn_logit_softcapping", None),
        rotary_features=turned,
        frequencies=frequencies,
        windows=tuple(window if one == "sliding_attention" else 0 for one in types),
        embedding_scale=sizes["features"] ** 0.5 if is_gemma else 1.0,
        tied="lm_head.weight" not in arrays,
        logit_softcap=config.get("final_logit_softcapping", None),
    )
    before = "pre_feedforward" if has_outer_norms else "post_attention"
    names = names_of(
        "embedding embed_tokens; norm norm; unembedding lm_head",
        "layers",
        f"{SELF_ATTENTION} attention/out self_attn.o_proj; attention/query_ln self_attn.q_norm;"
        f"attention/key_ln self_attn.k_norm; attention_norm input_layernorm;"
        f"feed_forward_norm {before}_layernorm; attention_output_norm post_attention_layernorm;"
        "feed_forward_output_norm post_feedforward_layernorm; feed_forward/gate mlp.gate_proj;"
        "feed_forward/hidden mlp.up_proj; feed_forward/out mlp.down_proj",
        range(model.num_blocks),
    )
    factors = magnified(magnitudes, turned, width, bool(query_key_norm))
    shift = float(is_gemma or is_hybrid)
    return model, Layout(names, turned=turned, shift=shift, factors=factors)


def phi3(config: ModelConfig, arrays: StoredWeights) -> tuple[AnyModel, Layout]:
    """Phi 3 and 4: a Llama whose projections are stored together."""
    config.unused("auto_map")  # older folders name code of their own, which transformers has since
    model, layout = llama(config, arrays)
    assert isinstance(model, Decoder)
    names = names_of(
        "",
        "layers",
        "attention/query self_attn.qkv_proj 0; attention/key self_attn.qkv_proj 1;"
        "attention/value self_attn.qkv_proj 2; feed_forward/gate mlp.gate_up_proj 0;"
        "feed_forward/hidden mlp.gate_up_proj 1",
        range(model.num_blocks),
    )
    keys = model.num_key_heads * model.head_features
    widths = {
        "qkv_proj": (1, [model.num_heads * model.head_features, keys, keys]),
        "gate_up_proj": (1, [model.hidden_features] * 2),
    }
    return model, layout._replace(names=layout.names | names, fused=widths)


def olmo(config: ModelConfig, arrays: StoredWeights) -> tuple[AnyModel, Layout]:
    """OLMo 1: a Llama with layer norms without parameters."""
    config.only(clip_qkv=None)
    model, layout = llama(config, arrays)
    return model.clone(rms=False, norm_parameters=False, epsilon=1e-5), layout


def granite(config: ModelConfig, arrays: StoredWeights) -> tuple[AnyModel, Layout]:
    """Granite 3: a Llama with factors of embeddings, scores, the sums of blocks, and logits."""
    model, layout = llama(config, arrays)
    assert isinstance(model, Decoder)
    model = model.clone(
        scale=config.number("attention_multiplier", 1.0),
        embedding_scale=config.number("embedding_multiplier", 1.0),
    )
    added = config.number("residual_multiplier", 1.0)
    parts = [
        f"blocks_{i}/{p}" for i in range(model.num_blocks) for p in ("attention", "feed_forward")
    ]
    factors = {"norm": 1 / config.number("logits_scaling", 1.0), **layout.factors}
    return model, layout._replace(factors=factors | {f"{part}/out": added for part in parts})


def smollm3(config: ModelConfig, arrays: StoredWeights) -> tuple[AnyModel, Layout]:
    """SmolLM3: a Llama with blocks without positions."""
    config.only(use_sliding_window=False)
    model, layout = llama(config, arrays)
    assert isinstance(model, Decoder)
    every = config.get("no_rope_layer_interval", 4)
    default = [(i + 1) % every != 0 for i in range(model.num_blocks)]
    has_positions = config.get("no_rope_layers", default)
    turning = zip(model.frequencies, has_positions)  # else by no angle
    frequencies = tuple(own if has else (0.0,) * len(own) for own, has in turning)
    return model.clone(frequencies=frequencies), layout


def hybrid(config: ModelConfig, arrays: StoredWeights) -> tuple[AnyModel, Layout]:
    """Qwen 3.5, and Qwen3-Next without experts: a Llama with a gated delta rule in most blocks."""
    if any(".experts." in name for name in arrays.files):
        raise config.wrong("num_experts", "dense networks", config.get("num_experts", None))
    # of images, and of a network that guesses further tokens
    arrays.read |= {name for name in arrays.files if name.startswith(("visual.", "mtp."))}
    config.only(hidden_act="silu", attn_output_gate=True, output_gate_type="swish")
    config.unused("mlp_only_layers decoder_sparse_step num_experts num_experts_per_tok")
    config.unused("moe_intermediate_size shared_expert_intermediate_size norm_topk_prob")
    config.unused("output_router_logits router_aux_loss_coef mamba_ssm_dtype")
    config.unused("mtp_num_hidden_layers mtp_use_dedicated_embeddings")
    model, layout = llama(config, arrays)
    assert isinstance(model, Decoder)
    heads, key_heads = (config.get(f"linear_num_{name}_heads") for name in ("value", "key"))
    value, key = (config.get(f"linear_{name}_head_dim") for name in ("value", "key"))
    sizes = {"num_heads": heads, "num_key_heads": key_heads}
    sizes |= {"key_features": heads * key, "value_features": heads * value}
    sizes |= {"conv_size": config.get("linear_conv_kernel_dim")}
    model = model.clone(output_gate=True, linear=FrozenDict(sizes))
    is_fused = config.get("model_type") == "qwen3_next"
    fused, single = "qkvz 0,qkvz 1,qkvz 2,qkvz 3,ba 0,ba 1", "qkv 0,qkv 1,qkv 2,z,b,a"
    projections = zip(
        ("query", "key", "value", "gate", "strength", "decay"),
        (fused if is_fused else single).split(","),
        strict=True,
    )
    of_linear = ";".join(f"attention/{ours} linear_attn.in_proj_{its}" for ours, its in projections)
    of_linear += (
        ";attention/conv linear_attn.conv1d.weight T; attention/decay_bias linear_attn.dt_bias;"
        "attention/decay_rate linear_attn.A_log; attention/context_norm linear_attn.norm;"
        "attention/out linear_attn.out_proj"
    )
    of_full = "attention/query self_attn.q_proj 0; attention/gate self_attn.q_proj 1"
    linear = [i for i, name in enumerate(model.attentions) if name != "full"]
    names = names_of("", "layers", of_full, range(model.num_blocks))
    names |= names_of("", "layers", of_linear, linear)
    values = heads // key_heads  # that share a key
    widths = {
        "q_proj": (model.num_heads, [model.head_features] * 2),
        "in_proj_qkv": (1, [key_heads * key, key_heads * key, heads * value]),
        "in_proj_qkvz": (key_heads, [key, key, values * value, values * value]),
        "in_proj_ba": (key_heads, [values, values]),
    }
    return model, layout._replace(names=layout.names | names, fused=widths)


def gpt_neox(config: ModelConfig, arrays: StoredWeights) -> tuple[AnyModel, Layout]:
    """Pythia, and other GPT-NeoX."""
    config.only(attention_bias=True, is_decoder=False)
    config.unused("tie_word_embeddings")
    model, factors = decoder_with_layer_norms(config, arrays, "embed_out", 0.25, "gelu")
    is_parallel = config.get("use_parallel_residual", True)
    # a config may name key heads, and no array has any
    model = model.clone(parallel=is_parallel, num_key_heads=0)
    names = names_of(
        "embedding embed_in; norm final_layer_norm; unembedding embed_out",
        "layers",
        "attention_norm input_layernorm; feed_forward_norm post_attention_layernorm;"
        "attention/query attention.query_key_value 0; attention/key attention.query_key_value 1;"
        "attention/value attention.query_key_value 2; attention/out attention.dense;"
        "feed_forward/hidden mlp.dense_h_to_4h; feed_forward/out mlp.dense_4h_to_h",
        range(model.num_blocks),
    )
    fused = {"query_key_value": (model.num_heads, [model.features // model.num_heads] * 3)}
    return model, Layout(names, turned=model.rotary_features, fused=fused, factors=factors)


def phi(config: ModelConfig, arrays: StoredWeights) -> tuple[AnyModel, Layout]:
    """Phi 1 to 2. One norm serves both parts of a block."""
    config.only(qk_layernorm=False)
    config.unused("tie_word_embeddings")
    model, factors = decoder_with_layer_norms(config, arrays, "lm_head", 0.5, "gelu_new")
    model = model.clone(parallel=True, unembedding_bias=not model.tied)
    names = names_of(
        "embedding embed_tokens; norm final_layernorm; unembedding lm_head",
        "layers",
        f"{SELF_ATTENTION} attention/out self_attn.dense; attention_norm input_layernorm;"
        "feed_forward_norm input_layernorm; feed_forward/hidden mlp.fc1; feed_forward/out mlp.fc2",
        range(model.num_blocks),
    )
    return model, Layout(names, turned=model.rotary_features, factors=factors)


def starcoder2(config: ModelConfig, arrays: StoredWeights) -> tuple[AnyModel, Layout]:
    config.unused("activation_function layer_norm_epsilon mlp_type norm_type")
    config.unused("scale_attn_weights scale_attention_softmax_in_fp32 tie_word_embeddings")
    model, factors = decoder_with_layer_norms(config, arrays, "lm_head", 1.0, "gelu_pytorch_tanh")
    types, window = block_types(config, model.num_blocks), config.get("sliding_window", 0)
    biases = dict.fromkeys(("query_bias", "out_bias", "hidden_bias"), config.get("use_bias", True))
    model = model.clone(
        epsilon=config.number("norm_epsilon", 1e-5),
        windows=tuple(window if one == "sliding_attention" else 0 for one in types),
        **biases,
    )
    names = names_of(
        "embedding embed_tokens; norm norm; unembedding lm_head",
        "layers",
        f"{SELF_ATTENTION} attention/out self_attn.o_proj; attention_norm input_layernorm;"
        "feed_forward_norm post_attention_layernorm; feed_forward/hidden mlp.c_fc;"
        "feed_forward/out mlp.c_proj",
        range(model.num_blocks),
    )
    return model, Layout(names, turned=model.rotary_features, factors=factors)


def decoder_with_layer_norms(
    config: ModelConfig, arrays: StoredWeights, unembedding: str, share: float, activation: str
) -> tuple[Decoder, dict[str, np.ndarray]]:
    """Makes a decoder with layer norms and rotary positions on a part of each head, and `factors`.

    `share` is the part where no option names one, as is `activation`.
    """
    sizes = rotary_sizes_of(config)
    width = sizes["features"] // sizes["num_heads"]
    turned = rotary_features_of(config, width, share)
    types = ["full_attention"] * sizes["num_blocks"]
    frequencies, magnitudes = frequencies_of(config, types, turned)
    model = Decoder(
        **sizes,
        activation=config.choice("hidden_act", ACTIVATIONS, activation),
        epsilon=config.number("layer_norm_eps", 1e-5),
        rotary_features=turned,
        frequencies=frequencies,
        tied=f"{unembedding}.weight" not in arrays,
    )
    return model, magnified(magnitudes, turned, width)


def sizes_of(config: ModelConfig, names: str = SIZES) -> Options:
    """Returns the sizes of a model of texts, by the names of its options."""
    vocabulary, length, features, heads, blocks = names.split()
    return {
        "vocabulary_size": config.get(vocabulary),
        "max_length": config.get(length),
        "features": config.get(features),
        "num_heads": config.get(heads),
        "num_blocks": config.get(blocks),
    }


def rotary_sizes_of(config: ModelConfig) -> Options:
    """Returns the sizes of a decoder with rotary positions."""
    sizes = sizes_of(config)
    sizes["num_key_heads"] = config.get("num_key_value_heads", sizes["num_heads"])
    sizes["hidden_features"] = config.get("intermediate_size")
    return sizes | {"positions": "rotary", "max_length": longest_of(config)}


def rotary_features_of(config: ModelConfig, width: int, share: float) -> int:
    """Returns the number of features of a head that are turned, by default a share of them."""
    share = config.number("rotary_pct", config.number("partial_rotary_factor", share))
    return int(width * config.part("rope_parameters").number("partial_rotary_factor", share))


def magnified(
    magnitudes: Sequence[float], turned: int, width: int, is_normed: bool = False
) -> dict[str, np.ndarray]:
    """Returns the factors of arrays that make queries and keys larger where they are turned.

    Cosines and sines then need none. Queries and keys with norms get theirs after these.
    """
    is_turned = np.arange(width) < turned
    return {
        f"blocks_{i}/attention/{name}{'_ln' * is_normed}": np.where(is_turned, magnitude, 1)
        for i, magnitude in enumerate(magnitudes)
        for name in ("query", "key")
        if magnitude != 1
    }


def block_types(config: ModelConfig, num_blocks: int, is_hybrid: bool = False) -> list[str]:
    """Returns for each block `full_attention`, or `sliding_attention` or `linear_attention`."""
    known = ("full_attention", LINEAR if is_hybrid else "sliding_attention")
    uses_window = config.get("use_sliding_window", True)
    slides = uses_window and config.get("sliding_window", None) is not None
    default = [known[1] if slides else known[0]] * num_blocks
    if is_hybrid or (slides and config.get("model_type") == "olmo3"):
        every = config.get("full_attention_interval", 4)
        default = [known[(i + 1) % every != 0] for i in range(num_blocks)]
    types = config.get("layer_types", default)
    if len(types) != num_blocks or not set(types) <= set(known):
        raise config.wrong("layer_types", f"{num_blocks} of {' and '.join(known)}", types)
    return types


def bert(config: ModelConfig, arrays: StoredWeights) -> tuple[AnyModel, Layout]:
    """BERT and ELECTRA; RoBERTa and its likes, which count positions from the id of padding on."""
    kind = config.get("model_type")
    is_roberta, is_electra = kind in ROBERTAS, kind == "electra"
    config.only(is_decoder=False, add_cross_attention=False, position_embedding_type="absolute")
    first = config.get("pad_token_id", 1) + 1 if is_roberta else 0
    sizes = sizes_of(config)
    sizes["max_length"] -= first
    pooler, classes, word, word_norm, bias = (
        "pooler.dense",
        "classifier",
        *HEADS_OF_WORDS[kind].split(),
    )
    if is_roberta or is_electra:
        pooler, classes = "classifier.dense", "classifier.out_proj"
    if is_electra:
        config.only(hidden_act="gelu")
        # of a discriminator, which has states like others
        arrays.read |= {name for name in arrays.files if name.startswith("discriminator_")}
        config.unused("summary_activation summary_type summary_use_proj")
        sizes["embedding_features"] = config.get("embedding_size", 128)
    head = head_of(config, arrays, bias, classes)
    classes = "classifier" if head["head"] == "tokens" else classes
    model = Encoder(
        **sizes,
        hidden_features=config.get("intermediate_size"),
        num_types=config.get("type_vocab_size", 2),
        activation=config.choice("hidden_act", ACTIVATIONS, "gelu"),
        epsilon=config.number("layer_norm_eps", 1e-12),
        pooling="gelu" if is_electra else "tanh",
        **head,
    )
    names = names_of(
        f"{EMBEDDINGS} types embeddings.token_type_embeddings; pooler {pooler}; classes {classes};"
        f"embedding_projection embeddings_project; word {word}; word_norm {word_norm};"
        f"word_bias {bias}",
        "encoder.layer",
        "attention/query attention.self.query; attention/key attention.self.key;"
        "attention/value attention.self.value; attention/out attention.output.dense;"
        "attention_norm attention.output.LayerNorm; feed_forward_norm output.LayerNorm;"
        "feed_forward/hidden intermediate.dense; feed_forward/out output.dense",
        range(model.num_blocks),
    )
    return model, Layout(names, first_position=first)


def distilbert(config: ModelConfig, arrays: StoredWeights) -> tuple[AnyModel, Layout]:
    config.only(sinusoidal_pos_embds=False)
    model = Encoder(
        **sizes_of(config, "vocab_size max_position_embeddings dim n_heads n_layers"),
        hidden_features=config.get("hidden_dim"),
        activation=config.choice("activation", ACTIVATIONS, "gelu"),
        pooling="relu",
        **head_of(config, arrays, "vocab_projector.bias", "classifier"),
    )
    names = names_of(
        f"{EMBEDDINGS} pooler pre_classifier; classes classifier; word vocab_transform;"
        "word_norm vocab_layer_norm; word_bias vocab_projector.bias",
        "transformer.layer",
        "attention/query attention.q_lin; attention/key attention.k_lin;"
        "attention/value attention.v_lin; attention/out attention.out_lin;"
        "attention_norm sa_layer_norm; feed_forward_norm output_layer_norm;"
        "feed_forward/hidden ffn.lin1; feed_forward/out ffn.lin2",
        range(model.num_blocks),
    )
    return model, Layout(names)


def head_of(config: ModelConfig, arrays: StoredWeights, words: str, classes: str) -> Options:
    """Returns the options of the head of an encoder, by its class and the arrays that there are."""
    config.only(tie_word_embeddings=True)
    if "ForTokenClassification" in str(config.get("architectures", [])):
        return {"head": "tokens", "num_classes": arrays.num_rows("classifier.weight")}
    if f"{classes}.weight" in arrays:
        number = arrays.num_rows(f"{classes}.weight")
        config.only(problem_type="regression" if number == 1 else "single_label_classification")
        config.unused("sentence_transformers sbert_ce_default_activation_function")
        return {"head": "classes", "num_classes": number}
    return {"head": "words" if words in arrays else "states"}


def vit(config: ModelConfig, arrays: StoredWeights) -> tuple[AnyModel, Layout]:
    """ViT and DeiT."""
    config.unused("encoder_stride pooler_act pooler_output_size")
    config.only(problem_type="single_label_classification")
    has_teacher_classes = "cls_classifier.weight" in arrays
    classes = "cls_classifier" if has_teacher_classes else "classifier"
    model = VisionTransformer(
        arrays.num_rows(f"{classes}.weight") if f"{classes}.weight" in arrays else 0,
        config.get("image_size"),
        config.get("patch_size"),
        config.get("num_channels"),
        config.get("hidden_size"),
        config.get("num_attention_heads"),
        config.get("num_hidden_layers"),
        config.get("intermediate_size"),
        config.choice("hidden_act", ACTIVATIONS, "gelu"),
        config.number("layer_norm_eps", 1e-12),
        config.get("qkv_bias", True),
        has_teacher_token=config.get("model_type") == "deit",
        has_teacher_classes=has_teacher_classes,
    )
    names = names_of(
        "class_token embeddings.cls_token; teacher_token embeddings.distillation_token;"
        "patches embeddings.patch_embeddings.projection; norm layernorm;"
        f"positions/embedding embeddings.position_embeddings; classes {classes};"
        "teacher_classes distillation_classifier",
        "encoder.layer",
        "attention/query attention.attention.query; attention/key attention.attention.key;"
        "attention/value attention.attention.value; attention/out attention.output.dense;"
        "attention_norm layernorm_before; feed_forward_norm layernorm_after;"
        "feed_forward/hidden intermediate.dense; feed_forward/out output.dense",
        range(model.num_blocks),
    )
    return model, Layout(names)


def t5(config: ModelConfig, arrays: StoredWeights) -> tuple[AnyModel, Layout]:
    """T5, its version 1.1, and Flan-T5. Blocks of a stack share the bias of the first."""
    config.only(is_decoder=False)
    config.unused("dense_act_fn is_gated_act initializer_factor n_positions")
    activations = {prefix + name: name for prefix in ("", "gated-") for name in ACTIVATIONS}
    activations["gated-gelu"] = "gelu_new"
    kind = config.choice("feed_forward_proj", activations, "relu")
    is_gated = kind.startswith("gated-")
    num_encoder = config.get("num_layers")
    num_decoder = config.get("num_decoder_layers", num_encoder)
    model = EncoderDecoder(
        vocabulary_size=config.get("vocab_size"),
        max_length=ANY_LENGTH,
        features=config.get("d_model"),
        num_heads=config.get("num_heads"),
        head_features=config.get("d_kv"),
        hidden_features=config.get("d_ff"),
        num_encoder_blocks=num_encoder,
        num_blocks=num_encoder + num_decoder,
        start_token=config.get("decoder_start_token_id", 0),
        activation=activations[kind],
        gated=is_gated,
        epsilon=config.number("layer_norm_epsilon", 1e-6),
        num_buckets=config.get("relative_attention_num_buckets", 32),
        max_distance=config.get("relative_attention_max_distance", 128),
        tied="lm_head.weight" not in arrays,
    )
    own = "attention_norm layer.0.layer_norm; attention/query layer.0.SelfAttention.q;"
    own += "attention/key layer.0.SelfAttention.k; attention/value layer.0.SelfAttention.v;"
    own += "attention/out layer.0.SelfAttention.o;"
    cross = own.replace("attention", "cross_attention").replace("layer.0", "layer.1")
    cross = cross.replace("SelfAttention", "EncDecAttention")
    network = "feed_forward_norm layer.1.layer_norm; feed_forward/out layer.1.DenseReluDense.wo;"
    network += "feed_forward/gate layer.1.DenseReluDense.wi_0;"
    network += f"feed_forward/hidden layer.1.DenseReluDense.{'wi_1' if is_gated else 'wi'}"
    further = own + cross + network.replace("layer.1", "layer.2")
    names = {"embedding": "shared", "unembedding": "lm_head"}
    names |= names_of("", "encoder.block", own + network, range(num_encoder))
    names |= names_of("", "decoder.block", further, range(num_decoder), num_encoder)
    for stack in ("encoder", "decoder"):
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"
        names |= {f"{stack}_norm": f"{stack}.final_layer_norm", f"{stack}_bias": bias}
    # newer folders name the factor; older ones scale where the embeddings serve twice
    is_scaled = config.get("scale_decoder_outputs", config.get("tie_word_embeddings", True))
    return model, Layout(names, factors={"decoder_norm": model.features**-0.5 if is_scaled else 1})


def names_of(
    names: str, their_blocks: str, of_block: str, numbers: Iterable[int], first: int = 0
) -> dict[str, str]:
    """Returns the map of a layout, from pairs of our name and theirs, also of blocks.

    Our number of their first block is `first`.
    """
    pairs = lambda text: [pair.split(maxsplit=1) for pair in text.split(";") if pair.strip()]
    return dict(pairs(names)) | {
        f"blocks_{first + i}/{ours}": f"{their_blocks}.{i}.{its}"
        for i in numbers
        for ours, its in pairs(of_block)
    }


WRITERS = ("ForCausalLM", "LMHeadModel", "Model")
OF_BOTH = (*WRITERS, "ForConditionalGeneration")  # of texts and images
READERS = ("Model", "ForSequenceClassification", "ForMaskedLM", "ForPreTraining")
READERS += ("ForTokenClassification",)
ROBERTAS = ("roberta", "xlm-roberta", "camembert")
HEADS_OF_WORDS = {  # the layer before the words, its norm, and the biases of words
    "bert": "cls.predictions.transform.dense cls.predictions.transform.LayerNorm"
    " cls.predictions.bias",
    "electra": "generator_predictions.dense generator_predictions.LayerNorm generator_lm_head.bias",
    **dict.fromkeys(ROBERTAS, "lm_head.dense lm_head.layer_norm lm_head.bias"),
}
SEERS = ("Model", "ForImageClassification", "ForImageClassificationWithTeacher")
OF_DECODERS = ("rotary_emb.inv_freq", "attention.bias", "attention.masked_bias")
OF_GPT2 = (".attn.bias", ".attn.masked_bias", "lm_head.weight")
OF_IMAGES = ("pooler.dense.weight", "pooler.dense.bias")
OF_ENCODERS = ("position_ids", "decoder.weight", "decoder.bias", *OF_IMAGES)
OF_ENCODERS += ("seq_relationship.weight", "seq_relationship.bias", "generator_lm_head.weight")
OF_T5 = ("embed_tokens.weight", "EncDecAttention.relative_attention_bias.weight")
HYBRIDS = ("qwen3_next", "qwen3_5", "qwen3_5_text")
LLAMAS = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "olmo2")
DECODERS = dict.fromkeys((*LLAMAS, "olmo3"), llama) | {"olmo": olmo, "phi": phi, "phi3": phi3}
DECODERS |= {"granite": granite, "smollm3": smollm3, "starcoder2": starcoder2}
FAMILIES = {
    "gpt2": Family(gpt2, ("transformer.",), OF_GPT2, WRITERS),
    "gpt_neox": Family(gpt_neox, ("gpt_neox.",), OF_DECODERS, WRITERS),
    **{key: Family(own, ("model.",), OF_DECODERS, WRITERS) for key, own in DECODERS.items()},
    **dict.fromkeys(HYBRIDS, Family(hybrid, ("model.", "language_model."), OF_DECODERS, OF_BOTH)),
    **dict.fromkeys(
        HEADS_OF_WORDS, Family(bert, ("bert.", "roberta.", "electra."), OF_ENCODERS, READERS)
    ),
    "distilbert": Family(distilbert, ("distilbert.",), ("vocab_projector.weight",), READERS),
    "t5": Family(t5, (), OF_T5, ("ForConditionalGeneration",)),
    **dict.fromkeys(("vit", "deit"), Family(vit, ("vit.", "deit."), OF_IMAGES, SEERS)),
}


def read(
    folder: Path, max_length: int = MOST_READ, dtype: DTypeLike = jnp.float32
) -> tuple[ModelConfig, AnyModel, Params]:
    """Reads the options, the model and its parameters, in a dtype, from a folder.

    Args:
        folder: with `config.json`, and `model.safetensors` or its index.
        max_length: the number of tokens that the model reads at most, where it can read as many.

    Raises a UsageError for a family, an option or a dtype that is not covered, and arrays that are
    missing, damaged, left over, or of another shape.
    """
    path = folder / "config.json"
    config = ModelConfig(read_json(path), path)
    family = FAMILIES[config.choice("model_type", FAMILIES, "")]
    made_of = config.get("architectures", [])  # other heads may have arrays of the same names
    if len(made_of) > 1 or not all(str(name).endswith(family.classes) for name in made_of):
        expected = f"one name that ends in {', '.join(family.classes)}"
        raise config.wrong("architectures", expected, made_of)
    if config.get("model_type") == "qwen3_5":  # which has options of images, too
        config = config.part("text_config")
    arrays = open_arrays(folder, family.prefixes)
    try:
        model, layout = family.build(config, arrays)
        config.check_all_known()
        if not isinstance(model, VisionTransformer):
            model = model.clone(max_length=min(model.max_length, max_length))
        shapes = jax.eval_shape(model.init, jax.random.key(0), sample(model))["params"]
    except UsageError:
        raise
    except Exception as error:  # of an option of another type, or of sizes that do not fit
        raise UsageError(f"expected sizes that fit in {path} ({one_line(error)[:200]})") from error
    params = fill(shapes, arrays, layout)
    arrays.check_all_read(family.ignored)
    return config, model, jax.tree.map(lambda array: jnp.asarray(array, dtype), params)


def sample(model: AnyModel) -> Tree:
    """Returns inputs of the shapes and dtypes that a model takes."""
    if isinstance(model, VisionTransformer):
        size = model.image_size
        return jax.ShapeDtypeStruct((1, size, size, model.channels), jnp.float32)
    tokens, lengths = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((1, 4), (1,)))
    if isinstance(model, EncoderDecoder):
        return {"source": tokens, "source_lengths": lengths, "target": tokens}
    if isinstance(model, Encoder):
        return {"tokens": tokens, "lengths": lengths}
    return tokens


def fill(shapes: Tree, arrays: StoredWeights, layout: Layout, path: tuple[str, ...] = ()) -> Tree:
    """Returns the parameters of a model from the arrays of a folder, each of our shape."""
    if isinstance(shapes, dict):
        return {key: fill(below, arrays, layout, (*path, key)) for key, below in shapes.items()}
    *layer, kind = path
    their, *part = name_of(path, layout.names)
    array, shape = arrays[their], tuple(shapes.shape)
    refuse = lambda: UsageError(f"expected {their} for a {kind} of {shape}, got {array.shape}")
    if kind == "conv":
        array = array.reshape(len(array), -1)  # (channels, tokens)
    if part == ["T"] or (kind == "kernel" and layout.is_transposed):  # and patches, of four axes
        array = array.transpose(2, 3, 1, 0) if array.ndim == 4 else array.T
    if part and part != ["T"]:
        number, widths = layout.fused[their.split(".")[-2]]
        if array.shape[-1] != number * sum(widths):
            raise refuse()
        groups = array.reshape(*array.shape[:-1], number, -1)
        parts = np.split(groups, np.cumsum(widths)[:-1], axis=-1)
        array = parts[int(part[0])].reshape(*array.shape[:-1], -1)
    if kind == "embedding" and layer[0] in ("positions", "position_table"):
        array = array.reshape(-1, array.shape[-1])[layout.first_position :][: shape[0]]
    summed = 2 if layer[-1:] == ["out"] and len(shape) == 3 else 1  # axes of the inputs
    stored = (math.prod(shape[:summed]), math.prod(shape[summed:]))
    fits = array.ndim == 4 or array.shape == stored or (kind != "kernel" and array.shape == shape)
    if array.size != math.prod(shape) or (array.ndim > 1 and "token" not in kind and not fits):
        raise refuse()
    array = array.reshape(shape)
    is_linear = kind == "kernel" and len(shape) == 2  # attention without positions
    if layout.turned and layer[-1:] in (["query"], ["key"], ["query_ln"], ["key_ln"]):
        array = array if is_linear else in_pairs(array, layout.turned)
    is_shifted = layout.shift and kind == "scale" and layer[-1] != "context_norm"
    array = array + layout.shift if is_shifted else array
    factor = layout.factors.get("/".join(layer), 1)
    return array if np.all(factor == 1) else array * factor


def name_of(path: tuple[str, ...], names: dict[str, str]) -> list[str]:
    """Returns their name of an array by our path of a parameter, and what follows in the map."""
    their = names.get("/".join(path))
    if their is None:
        their, *part = names["/".join(path[:-1])].split()
        their = " ".join([f"{their}.{'bias' if path[-1] == 'bias' else 'weight'}", *part])
    return their.split()


def in_pairs(array: np.ndarray, turned: int) -> np.ndarray:
    """Permutes features from pairs `(i, i + turned/2)` to the pairs `(2i, 2i+1)` of `rotary`.

    Queries and keys are permuted alike, so no score changes.
    """
    order = np.arange(turned).reshape(2, -1).T.ravel()
    return array[..., np.concatenate([order, np.arange(turned, array.shape[-1])])]
