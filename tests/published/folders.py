"""Folders of tiny random models, as transformers writes them, for every family that is read."""

import string
import sys
from pathlib import Path

import torch
import transformers as tr
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

SIZE = 300  # tokens
TEXT = ["the cat sat on the mat because the cat was tired", "a dog, a cat: who is it?"] * 3

DECODER = {"vocab_size": SIZE, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 3}
DECODER |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
DECODER |= {"bos_token_id": 0, "eos_token_id": 0}
ENCODER = {"vocab_size": SIZE, "hidden_size": 32, "num_hidden_layers": 2}
ENCODER |= {"num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": 64}
DISTIL = {"vocab_size": SIZE, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}
DISTIL |= {"max_position_embeddings": 64}
IMAGES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
IMAGES |= {"intermediate_size": 48, "image_size": 24, "patch_size": 6, "num_labels": 5}
LLAMA_3 = {"rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0}
LLAMA_3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0}
YARN |= {"original_max_position_embeddings": 16, "beta_fast": 4.0}
LONG = {"rope_type": "longrope", "rope_theta": 10_000.0, "short_factor": [1.0, 1.5, 2.0]}
LONG |= {"long_factor": [2.0, 3.0, 4.0], "partial_rotary_factor": 0.75}
LINEAR = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0}
GEMMA = DECODER | {"head_dim": 12, "pad_token_id": 0}
ROPES = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
}
HYBRID = DECODER | {"head_dim": 12, "partial_rotary_factor": 0.5, "linear_num_key_heads": 2}
HYBRID |= {"linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 10}
HYBRID |= {"layer_types": ["linear_attention", "full_attention", "linear_attention"]}
SECTIONS = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5}
SECTIONS |= {"mrope_section": [1, 1, 1], "mrope_interleaved": True}
VISION = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16}
VISION |= {"patch_size": 4, "out_hidden_size": 32, "num_position_embeddings": 16}
T5 = {"vocab_size": SIZE, "d_model": 32, "d_kv": 6, "d_ff": 48, "num_heads": 4, "num_layers": 3}
T5 |= {"num_decoder_layers": 2, "decoder_start_token_id": 0}
GPT_2 = {"vocab_size": SIZE, "n_positions": 64, "n_embd": 32, "n_layer": 3, "n_head": 4}

# by name: the class of the model, its config, and how it is saved
WRITES = {
    "gpt2": ("GPT2LMHeadModel", GPT_2),
    "gpt2_untied": ("GPT2LMHeadModel", GPT_2 | {"tie_word_embeddings": False, "n_inner": 40}),
    "llama_untied": ("LlamaForCausalLM", DECODER | {"tie_word_embeddings": False}),
    "llama_3_tied": (
        "LlamaForCausalLM",
        DECODER | {"tie_word_embeddings": True, "rope_parameters": LLAMA_3},
    ),
    "llama_biases_shards": (
        "LlamaForCausalLM",
        DECODER | {"attention_bias": True, "head_dim": 12, "rope_parameters": LINEAR},
    ),
    "llama_bfloat16": ("LlamaForCausalLM", DECODER),
    "llama_yarn": ("LlamaForCausalLM", DECODER | {"rope_parameters": YARN}),
    "qwen3_yarn": (
        "Qwen3ForCausalLM",
        DECODER | {"rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 0.4}},
    ),
    "pythia_yarn": (
        "GPTNeoXForCausalLM",
        DECODER | {"rope_parameters": YARN | {"partial_rotary_factor": 0.5}},
    ),
    "mistral": ("MistralForCausalLM", DECODER | {"sliding_window": 6}),
    "qwen2": (
        "Qwen2ForCausalLM",
        DECODER | {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    "qwen3": ("Qwen3ForCausalLM", DECODER | {"head_dim": 12}),
    "gemma": ("GemmaForCausalLM", GEMMA),
    "gemma2": ("Gemma2ForCausalLM", GEMMA | {"sliding_window": 5, "query_pre_attn_scalar": 20}),
    "gemma3": (
        "Gemma3ForCausalLM",
        GEMMA
        | {
            "sliding_window": 5,
            "query_pre_attn_scalar": 20,
            "rope_parameters": ROPES,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "olmo2": ("Olmo2ForCausalLM", DECODER),
    "phi3": ("Phi3ForCausalLM", DECODER | {"pad_token_id": 0, "sliding_window": 6}),
    "phi3_long": (
        "Phi3ForCausalLM",
        DECODER
        | {"pad_token_id": 0, "rope_parameters": LONG, "original_max_position_embeddings": 60},
    ),
    "olmo": ("OlmoForCausalLM", DECODER),
    "olmo3": ("Olmo3ForCausalLM", DECODER | {"num_hidden_layers": 4, "sliding_window": 5}),
    "olmo3_scaled": (
        "Olmo3ForCausalLM",
        DECODER
        | {"layer_types": ["sliding_attention", "full_attention", "full_attention"]}
        | {"sliding_window": 5, "rope_scaling": YARN | {"attention_factor": 1.3}},
    ),
    "starcoder2": ("Starcoder2ForCausalLM", DECODER | {"sliding_window": 6}),
    "starcoder2_untied": (
        "Starcoder2ForCausalLM",
        DECODER | {"use_bias": False, "tie_word_embeddings": False},
    ),
    "granite": (
        "GraniteForCausalLM",
        DECODER
        | {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "tie_word_embeddings": True}
        | {"attention_multiplier": 0.25, "logits_scaling": 5.0},
    ),
    "granite_untied": (
        "GraniteForCausalLM",
        DECODER | {"attention_bias": True, "residual_multiplier": 0.4, "logits_scaling": 5.0},
    ),
    "smollm3": (
        "SmolLM3ForCausalLM",
        DECODER | {"pad_token_id": 0, "no_rope_layer_interval": 2},
    ),
    "qwen3_next": ("Qwen3NextForCausalLM", HYBRID | {"num_experts": 0}),
    "qwen3_5": ("Qwen3_5ForCausalLM", HYBRID),
    "qwen3_5_images": (
        "Qwen3_5ForConditionalGeneration",
        {"text_config": HYBRID | {"rope_parameters": SECTIONS}, "vision_config": VISION},
    ),
    "pythia": ("GPTNeoXForCausalLM", DECODER | {"use_parallel_residual": True}),
    "neox_one_after_another": ("GPTNeoXForCausalLM", DECODER | {"use_parallel_residual": False}),
    "phi": ("PhiForCausalLM", DECODER),
    "bert": ("BertModel", ENCODER),
    "bert_classes": ("BertForSequenceClassification", ENCODER | {"num_labels": 3}),
    "bert_words": ("BertForMaskedLM", ENCODER),
    "roberta_classes": (
        "RobertaForSequenceClassification",
        ENCODER | {"num_labels": 3, "type_vocab_size": 1, "pad_token_id": 1},
    ),
    "roberta_words": ("RobertaForMaskedLM", ENCODER | {"type_vocab_size": 1, "pad_token_id": 1}),
    "roberta_tokens": (
        "RobertaForTokenClassification",
        ENCODER | {"num_labels": 7, "type_vocab_size": 1, "pad_token_id": 1},
    ),
    "xlm_roberta_classes": (
        "XLMRobertaForSequenceClassification",
        ENCODER | {"num_labels": 3, "type_vocab_size": 1, "pad_token_id": 1},
    ),
    "xlm_roberta_words": (
        "XLMRobertaForMaskedLM",
        ENCODER | {"type_vocab_size": 1, "pad_token_id": 1},
    ),
    "camembert": ("CamembertModel", ENCODER | {"type_vocab_size": 1, "pad_token_id": 1}),
    "bert_number": ("BertForSequenceClassification", ENCODER | {"num_labels": 1}),
    "bert_tokens": ("BertForTokenClassification", ENCODER | {"num_labels": 7}),
    "electra": ("ElectraModel", ENCODER | {"embedding_size": 20}),
    "electra_classes": (
        "ElectraForSequenceClassification",
        ENCODER | {"num_labels": 3, "embedding_size": 32},
    ),
    "electra_words": ("ElectraForMaskedLM", ENCODER | {"embedding_size": 20}),
    "electra_tokens": (
        "ElectraForTokenClassification",
        ENCODER | {"num_labels": 7, "embedding_size": 20},
    ),
    "distilbert_tokens": ("DistilBertForTokenClassification", DISTIL | {"num_labels": 7}),
    "distilbert": ("DistilBertModel", DISTIL),
    "distilbert_classes": ("DistilBertForSequenceClassification", DISTIL | {"num_labels": 3}),
    "distilbert_words": ("DistilBertForMaskedLM", DISTIL),
    "t5": ("T5ForConditionalGeneration", T5),
    "t5_gated_untied": (
        "T5ForConditionalGeneration",
        T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "vit": ("ViTForImageClassification", IMAGES),
    "vit_states": ("ViTModel", IMAGES),
    "vit_grey": ("ViTForImageClassification", IMAGES | {"num_channels": 1, "qkv_bias": False}),
    "deit": ("DeiTForImageClassification", IMAGES),
    "deit_teacher": ("DeiTForImageClassificationWithTeacher", IMAGES),
}


def write(name: str, folder: Path) -> Path:
    """Writes the folder of a model, with all parameters drawn anew so that each matters."""
    model_class, values = WRITES[name]
    torch.manual_seed(0)  # of rates that are not drawn anew
    model = getattr(tr, model_class)(getattr(tr, model_class).config_class(**values))
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    if "t5" in name and "untied" in name:  # newer versions tie by the arrays alone
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    with torch.no_grad():
        for own, array in model.named_parameters():
            noise = torch.randn(array.shape, generator=generator)
            is_table = any(part in own for part in ("emb", "wte", "wpe", "shared", "bias"))
            if "t5" in name and "final_layer_norm" in own:  # else a tied token follows itself
                array.copy_(noise)
            elif array.ndim == 1:
                array.add_(0.3 * noise)
            else:
                array.copy_(noise * (0.7 if is_table else 0.7 / array.shape[-1] ** 0.5))
    model.tie_weights()
    if "bfloat16" in name:
        model = model.to(torch.bfloat16)
    options = {"max_shard_size": "20KB"} if "shards" in name else {}
    model.eval().save_pretrained(folder, **options)
    if model_class.startswith(("Bert", "Roberta", "XLM", "Camem", "Electra", "Distil")):
        tokenizer_of_words().save(str(folder / "tokenizer.json"))
    elif model_class.startswith("T5"):
        tokenizer_of_pieces().save(str(folder / "tokenizer.json"))
    elif not model_class.startswith(("ViT", "DeiT")):
        tokenizer_of_bytes().save(str(folder / "tokenizer.json"))
    return folder


def tokenizer_of_bytes() -> Tokenizer:
    """As GPT-2's."""
    own = Tokenizer(models.BPE())
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    own.train_from_iterator(TEXT, trainer)
    return own


def tokenizer_of_words() -> Tokenizer:
    """As BERT's. It pads, as some published ones do, which must not matter."""
    own = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    own.normalizer = normalizers.BertNormalizer()
    own.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    own.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=SIZE, special_tokens=special, show_progress=False
    )
    own.train_from_iterator(TEXT, trainer)
    around = [("[CLS]", 2), ("[SEP]", 3)]
    own.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=around
    )
    own.enable_padding(length=32)
    return own


def tokenizer_of_pieces() -> Tokenizer:
    """As T5's."""
    own = Tokenizer(models.Unigram())
    own.pre_tokenizer, own.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=SIZE,
        special_tokens=["<pad>", "</s>", "<unk>"],
        unk_token="<unk>",
        initial_alphabet=list(string.ascii_letters + string.punctuation),
        show_progress=False,
    )
    own.train_from_iterator(TEXT, trainer)
    own.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    return own


if __name__ == "__main__":
    for name in sys.argv[2:] or WRITES:
        write(name, Path(sys.argv[1]) / name)
