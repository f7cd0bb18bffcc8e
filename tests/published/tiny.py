"""Folders of tiny published models, written as transformers writes them, without it."""

import json

import numpy as np
import pytest

FEATURES, HEADS, BLOCKS, TOKENS = 16, 2, 2, 64
WORDS = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]", "the", "cat", "sat", "on", "mat", "a", "dog"]
PIECES = ["<pad>", "</s>", "<unk>", *(f"\u2581{word}" for word in WORDS[5:]), "\u2581die", "s"]
PIECES += ["\u2581Katze", "\u2581sitzt", "\u2581auf", "\u2581der", "\u2581Matte", "\u2581ein", "."]
CLASSES = ["bad", "good", "neither"]


def tokenizer_of_bytes():
    tokenizers = pytest.importorskip("tokenizers")
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    model = tokenizers.models.BPE({letter: i for i, letter in enumerate(letters)}, [])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer, len(letters)


def write_hybrid(folder, seed=0):
    """A Qwen 3.5 whose first block has four heads with a state, and whose second has two."""
    tokenizer, size = tokenizer_of_bytes()
    config = {"model_type": "qwen3_5_text", "vocab_size": size, "hidden_size": FEATURES}
    config |= {"max_position_embeddings": TOKENS, "intermediate_size": 24, "head_dim": 8}
    config |= {"num_hidden_layers": BLOCKS, "num_attention_heads": HEADS, "bos_token_id": 0}
    config |= {"layer_types": ["linear_attention", "full_attention"]}
    heads, key_heads, key, value, taps = 4, 2, 4, 6, 3
    config |= {"linear_num_value_heads": heads, "linear_num_key_heads": key_heads}
    config |= {"linear_key_head_dim": key, "linear_value_head_dim": value}
    config |= {"linear_conv_kernel_dim": taps}
    shapes = {"embed_tokens.weight": (size, FEATURES), "norm.weight": (FEATURES,)}
    convolved = 2 * key_heads * key + heads * value
    linear, full = "layers.0.linear_attn", "layers.1.self_attn"
    shapes |= {
        f"{linear}.in_proj_qkv.weight": (convolved, FEATURES),
        f"{linear}.in_proj_z.weight": (heads * value, FEATURES),
        f"{linear}.in_proj_b.weight": (heads, FEATURES),
        f"{linear}.in_proj_a.weight": (heads, FEATURES),
        f"{linear}.conv1d.weight": (convolved, 1, taps),
        f"{linear}.dt_bias": (heads,),
        f"{linear}.A_log": (heads,),
        f"{linear}.norm.weight": (value,),
        f"{linear}.out_proj.weight": (FEATURES, heads * value),
        f"{full}.q_proj.weight": (2 * HEADS * 8, FEATURES),  # and gates
        f"{full}.k_proj.weight": (HEADS * 8, FEATURES),
        f"{full}.v_proj.weight": (HEADS * 8, FEATURES),
        f"{full}.o_proj.weight": (FEATURES, HEADS * 8),
        f"{full}.q_norm.weight": (8,),
        f"{full}.k_norm.weight": (8,),
    }
    for i in range(BLOCKS):
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"layers.{i}.{name}.weight"] = (FEATURES,)
        for name in ("gate_proj", "up_proj"):
            shapes[f"layers.{i}.mlp.{name}.weight"] = (24, FEATURES)
        shapes[f"layers.{i}.mlp.down_proj.weight"] = (FEATURES, 24)
    return write(folder, config, shapes, tokenizer, seed)


def write_gpt2(folder, num_blocks=BLOCKS, seed=0):
    """A GPT-2 whose tokens are bytes. Returns the folder."""
    tokenizer, size = tokenizer_of_bytes()
    config = {"model_type": "gpt2", "vocab_size": size, "n_positions": TOKENS}
    config |= {"n_embd": FEATURES, "n_head": HEADS, "n_layer": num_blocks, "bos_token_id": 0}
    shapes = {"wte.weight": (size, FEATURES), "wpe.weight": (TOKENS, FEATURES)}
    shapes |= norm("ln_f")
    for i in range(num_blocks):
        shapes |= norm(f"h.{i}.ln_1") | norm(f"h.{i}.ln_2")
        for name, rows, columns in (
            ("attn.c_attn", FEATURES, 3 * FEATURES),
            ("attn.c_proj", FEATURES, FEATURES),
            ("mlp.c_fc", FEATURES, 4 * FEATURES),
            ("mlp.c_proj", 4 * FEATURES, FEATURES),
        ):
            shapes |= {f"h.{i}.{name}.weight": (rows, columns), f"h.{i}.{name}.bias": (columns,)}
    return write(folder, config, shapes, tokenizer, seed)


def write_bert(folder, head="words", seed=0):
    """A BERT whose tokens are `WORDS`.

    Its head names `words` for `[MASK]`, `classes` of texts or of `tokens`, a `number`, or `states`.
    """
    tokenizers = pytest.importorskip("tokenizers")
    numbers = {word: i for i, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.add_special_tokens(WORDS[:5])
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    around = [(name, numbers[name]) for name in ("[SEP]", "[CLS]")]
    tokenizer.post_processor = tokenizers.processors.BertProcessing(*around)
    config = {"model_type": "bert", "vocab_size": len(WORDS), "max_position_embeddings": TOKENS}
    config |= {"hidden_size": FEATURES, "intermediate_size": 24, "num_hidden_layers": BLOCKS}
    config |= {"num_attention_heads": HEADS, "type_vocab_size": 2, "hidden_act": "gelu"}
    shapes = {
        f"bert.embeddings.{name}_embeddings.weight": (size, FEATURES)
        for name, size in (("word", len(WORDS)), ("position", TOKENS), ("token_type", 2))
    } | norm("bert.embeddings.LayerNorm")
    for i in range(BLOCKS):
        layer = f"bert.encoder.layer.{i}"
        for name in ("query", "key", "value"):
            shapes |= dense(f"{layer}.attention.self.{name}", FEATURES, FEATURES)
        shapes |= dense(f"{layer}.attention.output.dense", FEATURES, FEATURES)
        shapes |= dense(f"{layer}.intermediate.dense", FEATURES, 24)
        shapes |= dense(f"{layer}.output.dense", 24, FEATURES)
        shapes |= norm(f"{layer}.attention.output.LayerNorm") | norm(f"{layer}.output.LayerNorm")
    if head == "words":
        shapes |= dense("cls.predictions.transform.dense", FEATURES, FEATURES)
        shapes |= norm("cls.predictions.transform.LayerNorm")
        shapes |= {"cls.predictions.bias": (len(WORDS),)}
    elif head == "classes":
        config["id2label"] = dict(enumerate(CLASSES))
        shapes |= dense("bert.pooler.dense", FEATURES, FEATURES)
        shapes |= dense("classifier", FEATURES, len(CLASSES))
    elif head == "number":
        shapes |= dense("bert.pooler.dense", FEATURES, FEATURES) | dense("classifier", FEATURES, 1)
    elif head == "tokens":
        config["id2label"] = dict(enumerate(CLASSES))
        shapes |= dense("classifier", FEATURES, len(CLASSES))
    kinds = {"words": "MaskedLM", "tokens": "TokenClassification", "states": None}
    kind = kinds.get(head, "SequenceClassification")
    kind = f"For{kind}" if kind else "Model"
    config["architectures"] = ["Bert" + kind]
    return write(folder, config, shapes, tokenizer, seed)


def write_t5(folder, seed=8):
    """A T5 whose tokens are `PIECES`, with an encoder of two blocks and a decoder of one."""
    tokenizers = pytest.importorskip("tokenizers")
    pieces = [(piece, -float(i)) for i, piece in enumerate(PIECES)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, 2))
    tokenizer.add_special_tokens(PIECES[:3])
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    config = {"model_type": "t5", "vocab_size": len(PIECES), "d_model": FEATURES, "d_ff": 24}
    config |= {"d_kv": 6, "num_heads": HEADS, "num_layers": BLOCKS, "num_decoder_layers": 1}
    config |= {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    config |= {"decoder_start_token_id": 0, "eos_token_id": 1}
    shapes: dict[str, tuple[int, ...]] = {"shared.weight": (len(PIECES), FEATURES)}
    shapes["lm_head.weight"] = shapes["shared.weight"]
    for stack, number in (("encoder", BLOCKS), ("decoder", 1)):
        shapes[f"{stack}.final_layer_norm.weight"] = (FEATURES,)
        bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        shapes[bias] = (32, HEADS)
        attentions = ["SelfAttention", "EncDecAttention"][: 1 + (stack == "decoder")]
        for i in range(number):
            for j, name in enumerate(attentions):
                layer = f"{stack}.block.{i}.layer.{j}"
                shapes[f"{layer}.layer_norm.weight"] = (FEATURES,)
                shapes |= {f"{layer}.{name}.{part}.weight": (12, FEATURES) for part in "qkv"}
                shapes[f"{layer}.{name}.o.weight"] = (FEATURES, 12)
            layer = f"{stack}.block.{i}.layer.{len(attentions)}"
            shapes[f"{layer}.layer_norm.weight"] = (FEATURES,)
            shapes |= {
                f"{layer}.DenseReluDense.wi_{part}.weight": (24, FEATURES) for part in (0, 1)
            }
            shapes[f"{layer}.DenseReluDense.wo.weight"] = (FEATURES, 24)
    return write(folder, config, shapes, tokenizer, seed)


def write_vit(folder, seed=0, teacher=False, channels=1, classes=True):
    """A ViT for images of 8 x 8 pixels in patches of 2 x 2, or a DeiT. Returns the folder."""
    config = {"model_type": "deit" if teacher else "vit", "image_size": 8, "patch_size": 2}
    config["num_channels"] = channels
    config |= {"hidden_size": FEATURES, "intermediate_size": 24, "num_hidden_layers": BLOCKS}
    config |= {"num_attention_heads": HEADS, "id2label": dict(enumerate(CLASSES))}
    embeddings = "vit.embeddings"
    shapes = {f"{embeddings}.cls_token": (1, 1, FEATURES)}
    shapes |= {f"{embeddings}.distillation_token": (1, 1, FEATURES)} if teacher else {}
    shapes |= {f"{embeddings}.position_embeddings": (1, 18 if teacher else 17, FEATURES)}
    patches = f"{embeddings}.patch_embeddings.projection"
    shapes |= {f"{patches}.weight": (FEATURES, channels, 2, 2), f"{patches}.bias": (FEATURES,)}
    for i in range(BLOCKS):
        layer = f"vit.encoder.layer.{i}"
        for name in ("query", "key", "value"):
            shapes |= dense(f"{layer}.attention.attention.{name}", FEATURES, FEATURES)
        shapes |= dense(f"{layer}.attention.output.dense", FEATURES, FEATURES)
        shapes |= dense(f"{layer}.intermediate.dense", FEATURES, 24)
        shapes |= dense(f"{layer}.output.dense", 24, FEATURES)
        shapes |= norm(f"{layer}.layernorm_before") | norm(f"{layer}.layernorm_after")
    shapes |= norm("vit.layernorm")
    shapes |= dense("classifier", FEATURES, len(CLASSES)) if classes else {}
    return write(folder, config, shapes, None, seed)


def dense(name, inputs, outputs):
    """The shapes of a layer, whose kernel is `(out, in)`."""
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def norm(name):
    return {f"{name}.weight": (FEATURES,), f"{name}.bias": (FEATURES,)}


def write(folder, config, shapes, tokenizer, seed):
    """The files of a folder, with random numbers in every array. Returns the folder."""
    arrays = pytest.importorskip("safetensors.numpy")
    random = np.random.default_rng(seed)
    draw = lambda shape: random.normal(0, 0.4, shape).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    own = {name: draw(shape) for name, shape in shapes.items()}
    arrays.save_file(own, folder / "model.safetensors")
    if tokenizer is not None:
        tokenizer.save(str(folder / "tokenizer.json"))
    return folder
