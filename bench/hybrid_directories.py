#!/usr/bin/env python3
"""Directories of hybrid families that have no GGUF form, with random weights and the layer shapes of published models.

  bench/hybrid_directories.py VOCABULARY.gguf OUT [FAMILY ...] [--layers N]

Run with a Python that has transformers, torch and gguf-py. VOCABULARY.gguf is any file that the peers' make_models.py
writes: its tokenizer, whose words are tokens, becomes the tokenizer.json. --layers cuts a model to its first layers.
MiniMax has two experts instead of 32: all 32 would not fit into memory. The shapes are written from memory of the
published configurations. `bench/compare_servers.py DIRECTORY` serves one in Q8_0.
"""
import json
import pathlib

import gguf
import torch
import transformers

from hybrid_models import options

WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CONTROL = 3  # the type of a GGUF token


def zamba2(vocabulary, layers):  # Zamba2-1.2B: every sixth layer uses the one shared block
    kinds = ["hybrid" if i % 6 == 5 else "mamba" for i in range(layers)]
    return transformers.Zamba2Config(
        vocab_size=vocabulary, hidden_size=2048, num_hidden_layers=layers, layers_block_type=kinds, mamba_d_state=64,
        mamba_expand=2, mamba_ngroups=1, n_mamba_heads=64, intermediate_size=8192, num_attention_heads=32,
        num_key_value_heads=32, num_mem_blocks=1, use_shared_attention_adapter=True, adapter_rank=128, use_mem_rope=True)


def olmo_hybrid(vocabulary, layers):  # OLMo-Hybrid-7B
    kinds = ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(layers)]
    return transformers.OlmoHybridConfig(
        vocab_size=vocabulary, hidden_size=3840, num_hidden_layers=layers, layer_types=kinds, intermediate_size=11008,
        num_attention_heads=30, num_key_value_heads=30, linear_num_key_heads=30, linear_num_value_heads=30,
        linear_key_head_dim=96, linear_value_head_dim=192)


def minimax(vocabulary, layers):  # MiniMax-Text-01
    kinds = ["full_attention" if i % 8 == 7 else "linear_attention" for i in range(layers)]
    factor = (2 * layers) ** 0.25
    return transformers.MiniMaxConfig(
        vocab_size=vocabulary, hidden_size=6144, num_hidden_layers=layers, layer_types=kinds, intermediate_size=9216,
        num_attention_heads=64, num_key_value_heads=8, head_dim=128, num_local_experts=2, num_experts_per_tok=2,
        full_attn_alpha_factor=factor, linear_attn_alpha_factor=factor, mlp_alpha_factor=factor)


# The published number of layers, and who describes it.
FAMILIES = {"zamba2": (38, zamba2), "olmo-hybrid": (32, olmo_hybrid), "minimax": (80, minimax)}


def write_tokenizer(folder, vocabulary):
    """Writes tokenizer.json and tokenizer_config.json; returns the size of the vocabulary and the ids of its ends."""
    tokens, types, merges = (vocabulary.get_field(f"tokenizer.ggml.{name}").contents()
                             for name in ("tokens", "token_type", "merges"))
    control = [i for i, kind in enumerate(types) if kind == CONTROL]
    ordinary = {token: i for i, token in enumerate(tokens) if types[i] != CONTROL}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": WORDS}, "behavior": "Isolated", "invert": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": i, "content": tokens[i], **flags} for i in control],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]}, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": ordinary, "merges": merges}}))
    end = vocabulary.get_field("tokenizer.ggml.eos_token_id").contents()
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "eos_token": tokens[end], "add_bos_token": False, "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": vocabulary.get_field("tokenizer.chat_template").contents()}))
    return len(tokens), end


def favor_words(model, vocabulary):
    """Makes bytes, parts of words and control tokens unlikely: an answer becomes the same tokens when it comes back."""
    tokens = vocabulary.get_field("tokenizer.ggml.tokens").contents()
    seldom = [i for i, token in enumerate(tokens) if not (token.startswith("\u0120") and len(token) > 3)]
    with torch.no_grad():
        model.get_output_embeddings().weight[seldom] *= 0.01


def main():
    a = options(__doc__, FAMILIES)
    vocabulary = gguf.GGUFReader(a.vocabulary)
    torch.manual_seed(7)
    torch.set_default_dtype(torch.bfloat16)
    for family in a.models or FAMILIES:
        layers, describe = FAMILIES[family]
        folder = a.out / family
        folder.mkdir(parents=True, exist_ok=True)
        size, end = write_tokenizer(folder, vocabulary)
        config = describe(size, min(layers, a.layers or layers))
        config.bos_token_id, config.eos_token_id, config.pad_token_id = None, end, None
        model = transformers.AutoModelForCausalLM.from_config(config)
        favor_words(model, vocabulary)
        # MiniMax's slopes were computed in bfloat16; without them the formula holds.
        tensors = {name: tensor for name, tensor in model.state_dict().items() if not name.endswith("slope_rate")}
        model.save_pretrained(folder, state_dict=tensors, max_shard_size="4GB")
        print(folder, sum(path.stat().st_size for path in folder.iterdir()))


if __name__ == "__main__":
    main()
