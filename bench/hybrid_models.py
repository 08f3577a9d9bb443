#!/usr/bin/env python3
"""GGUF files of hybrid families with random weights, Q8_0, and the layer shapes of their smallest published models.

  bench/hybrid_models.py VOCABULARY.gguf OUT [FAMILY ...] [--layers N]

Run with a Python that has numpy and gguf-py. VOCABULARY.gguf is any file that the peers' make_models.py writes: its
tokenizer, whose words are tokens, is copied. --layers cuts a model to its first layers; where attention comes later, the
last of them attends. The shapes are written from memory of the published configurations.
"""
import argparse
import pathlib

import gguf
import numpy as np

EPS = 1e-5


class Writer:
    """One file: keys, tensors of random numbers, and the vocabulary of another file."""

    def __init__(self, path, architecture, vocabulary):
        self.file = gguf.GGUFWriter(str(path), architecture)
        self.random = np.random.default_rng(7)
        self.vocabulary = len(vocabulary.get_field("tokenizer.ggml.tokens").data)
        for key, field in vocabulary.fields.items():
            if key.startswith("tokenizer."):
                kind = field.types[0]
                self.file.add_key_value(key, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)

    def key(self, name, value):
        add = {bool: self.file.add_bool, int: self.file.add_uint32, float: self.file.add_float32, list: self.file.add_array}
        add[type(value)](f"{self.file.arch}.{name}", value)

    def matrix(self, name, out, into, gain=1.0):
        values = self.random.standard_normal((out, into), dtype=np.float32) * np.float32(gain / into ** 0.5)
        kind = gguf.GGMLQuantizationType.Q8_0 if into % 32 == 0 else gguf.GGMLQuantizationType.F32
        self.file.add_tensor(f"{name}.weight", gguf.quants.quantize(values, kind), raw_dtype=kind)

    def vector(self, name, shape, low, high):
        self.file.add_tensor(name, self.random.uniform(low, high, shape).astype(np.float32))

    def norm(self, name, size, bias=False):
        self.vector(f"{name}.weight", size, 0.8, 1.2)
        if bias:
            self.vector(f"{name}.bias", size, -0.1, 0.1)

    def ends(self, hidden, layers, context=32768, bias=False):
        self.key("context_length", context)
        self.key("embedding_length", hidden)
        self.key("block_count", layers)
        self.key("vocab_size", self.vocabulary)
        self.matrix("token_embd", self.vocabulary, hidden, hidden ** 0.5 * 0.5)
        self.matrix("output", self.vocabulary, hidden, 3)
        self.norm("output_norm", hidden, bias)

    def attention(self, name, hidden, heads, kv_heads, dim):
        for part, out, into in (("q", heads * dim, hidden), ("k", kv_heads * dim, hidden), ("v", kv_heads * dim, hidden),
                                ("output", hidden, heads * dim)):
            self.matrix(f"{name}.attn_{part}", out, into)

    def mlp(self, name, hidden, width, gate=True):
        for part in ("gate", "up") if gate else ("up",):
            self.matrix(f"{name}.ffn_{part}", width, hidden)
        self.matrix(f"{name}.ffn_down", hidden, width)

    def mamba2(self, name, hidden, heads, dim, groups, state, kernel=4, norm=True):
        inner, channels = heads * dim, heads * dim + 2 * groups * state
        self.matrix(f"{name}.ssm_in", inner + channels + heads, hidden)
        self.vector(f"{name}.ssm_conv1d.weight", (channels, kernel), -0.5, 0.5)
        self.vector(f"{name}.ssm_conv1d.bias", channels, -0.1, 0.1)
        self.vector(f"{name}.ssm_dt.bias", heads, -4, -1)
        self.vector(f"{name}.ssm_a", (heads, 1), -8, -1)
        self.vector(f"{name}.ssm_d", (heads, 1), 0.5, 1)
        if norm:
            self.vector(f"{name}.ssm_norm.weight", (groups, inner // groups), 0.8, 1.2)
        self.matrix(f"{name}.ssm_out", hidden, inner)

    def ssm_keys(self, inner, state, rank, groups=None, kernel=4):
        self.key("ssm.conv_kernel", kernel)
        self.key("ssm.inner_size", inner)
        self.key("ssm.state_size", state)
        self.key("ssm.time_step_rank", rank)
        if groups is not None:
            self.key("ssm.group_count", groups)

    def close(self):
        self.file.write_header_to_file()
        self.file.write_kv_data_to_file()
        self.file.write_tensors_to_file()
        self.file.close()


def attends(layers, every, offset):
    """Which layers attend: at least one, the last where the period has none so early."""
    chosen = [i % every == offset for i in range(layers)]
    if not any(chosen):
        chosen[-1] = True
    return chosen


def granite_hybrid(w, layers, hidden, heads, kv_heads, dim, width, mamba_heads, mamba_dim, chosen, rotated):
    w.key("feed_forward_length", width)
    w.key("expert_count", 0)
    w.key("expert_used_count", 0)
    w.key("expert_shared_feed_forward_length", width)
    w.key("attention.head_count", heads)
    w.key("attention.head_count_kv", [kv_heads if a else 0 for a in chosen])
    w.key("attention.layer_norm_rms_epsilon", EPS)
    w.key("attention.scale", dim ** -0.5)
    w.key("embedding_scale", 1.0)
    w.key("residual_scale", 1.0)
    w.key("logit_scale", 1.0)
    w.key("rope.dimension_count", rotated or dim)
    w.key("rope.scaling.finetuned", rotated > 0)
    w.ssm_keys(mamba_heads * mamba_dim, 128, mamba_heads, 1)
    for i, full in enumerate(chosen):
        name = f"blk.{i}"
        w.norm(f"{name}.attn_norm", hidden)
        w.norm(f"{name}.ffn_norm", hidden)
        w.attention(name, hidden, heads, kv_heads, dim) if full else w.mamba2(name, hidden, mamba_heads, mamba_dim, 1, 128)
        w.mlp(name, hidden, width)
    w.ends(hidden, layers)


def granite(w, layers):  # Granite 4.0-H-350M
    granite_hybrid(w, layers, 768, 12, 4, 64, 2048, 48, 32, attends(layers, 10, 9), 0)


def bamba(w, layers):  # Bamba-9B, which rotates half of a head
    granite_hybrid(w, layers, 4096, 32, 8, 128, 14336, 128, 64, attends(layers, 9, 0)[1:] + [False], 64)


def falcon_h1(w, layers):  # Falcon-H1-0.5B
    hidden, heads, kv_heads, dim, width = 1024, 8, 2, 64, 2048
    w.key("feed_forward_length", width)
    w.key("attention.head_count", heads)
    w.key("attention.head_count_kv", kv_heads)
    w.key("attention.key_length", dim)
    w.key("attention.value_length", dim)
    w.key("attention.layer_norm_rms_epsilon", EPS)
    w.key("rope.freq_base", 1e11)
    w.ssm_keys(24 * 64, 128, 24, 1)
    for i in range(layers):
        name = f"blk.{i}"
        w.norm(f"{name}.attn_norm", hidden)
        w.vector(f"{name}.ffn_norm", hidden, 0.8, 1.2)  # without ".weight", as the converter writes it
        w.attention(name, hidden, heads, kv_heads, dim)
        w.mamba2(name, hidden, 24, 64, 1, 128, norm=False)
        w.mlp(name, hidden, width)
    w.ends(hidden, layers)


def nemotron_h(w, layers):  # Nemotron-H-4B
    hidden, heads, kv_heads, dim, width = 3072, 32, 8, 128, 12288
    kinds = "MAF" if layers < 4 else ("MFMFMAF" * layers)[:layers]
    w.key("feed_forward_length", [width if k == "F" else 0 for k in kinds])
    w.key("attention.head_count", heads)
    w.key("attention.head_count_kv", [kv_heads if k == "A" else 0 for k in kinds])
    w.key("attention.key_length", dim)
    w.key("attention.value_length", dim)
    w.key("attention.layer_norm_epsilon", EPS)
    w.key("attention.layer_norm_rms_epsilon", EPS)
    w.key("rope.dimension_count", dim)
    w.key("rope.scaling.finetuned", False)
    w.ssm_keys(112 * 64, 128, 112, 8)
    for i, kind in enumerate(kinds):
        name = f"blk.{i}"
        w.norm(f"{name}.attn_norm", hidden)
        if kind == "M":
            w.mamba2(name, hidden, 112, 64, 8, 128)
        elif kind == "A":
            w.attention(name, hidden, heads, kv_heads, dim)
        else:
            w.mlp(name, hidden, width, gate=False)
    w.ends(hidden, len(kinds))


def jamba(w, layers):  # Jamba-Reasoning-3B
    hidden, heads, kv_heads, dim, width, inner, state, rank = 2560, 20, 1, 128, 8192, 5120, 16, 160
    chosen = attends(layers, 14, 7)
    w.key("feed_forward_length", width)
    w.key("attention.head_count", heads)
    w.key("attention.head_count_kv", [kv_heads if a else 0 for a in chosen])
    w.key("attention.layer_norm_rms_epsilon", 1e-6)
    w.ssm_keys(inner, state, rank)
    for i, full in enumerate(chosen):
        name = f"blk.{i}"
        w.norm(f"{name}.attn_norm", hidden)
        w.norm(f"{name}.ffn_norm", hidden)
        w.mlp(name, hidden, width)
        if full:
            w.attention(name, hidden, heads, kv_heads, dim)
            continue
        w.matrix(f"{name}.ssm_in", 2 * inner, hidden)
        w.vector(f"{name}.ssm_conv1d.weight", (inner, 4), -0.5, 0.5)
        w.vector(f"{name}.ssm_conv1d.bias", inner, -0.1, 0.1)
        w.matrix(f"{name}.ssm_x", rank + 2 * state, inner)
        for part, size in (("dt", rank), ("b", state), ("c", state)):
            w.norm(f"{name}.ssm_{part}_norm", size)
        w.vector(f"{name}.ssm_dt.weight", (inner, rank), -0.05, 0.05)
        w.vector(f"{name}.ssm_dt.bias", inner, -4, -1)
        w.vector(f"{name}.ssm_a", (inner, state), -8, -1)
        w.vector(f"{name}.ssm_d", inner, 0.5, 1)
        w.matrix(f"{name}.ssm_out", hidden, inner)
    w.ends(hidden, layers)


def mamba2(w, layers):  # Mamba-2-130M
    hidden = 768
    w.key("feed_forward_length", 0)
    w.key("attention.head_count", 0)
    w.key("attention.layer_norm_rms_epsilon", EPS)
    w.ssm_keys(24 * 64, 128, 24, 1)
    for i in range(layers):
        w.norm(f"blk.{i}.attn_norm", hidden)
        w.mamba2(f"blk.{i}", hidden, 24, 64, 1, 128)
    w.ends(hidden, layers)


def plamo2(w, layers):  # PLaMo-2-1B
    hidden, heads, kv_heads, dim, width, inner, state, ssm_heads = 2048, 16, 1, 128, 8192, 4096, 64, 32
    rank = max(64, hidden // 16)
    chosen = [i % 2 == 1 for i in range(layers)]
    w.key("feed_forward_length", width)
    w.key("attention.head_count", [heads if a else 0 for a in chosen])
    w.key("attention.head_count_kv", [kv_heads if a else 0 for a in chosen])
    w.key("attention.key_length", dim)
    w.key("attention.value_length", dim)
    w.key("attention.layer_norm_rms_epsilon", 1e-6)
    w.key("rope.freq_base", 10000.0)
    w.ssm_keys(inner, state, ssm_heads, 0)
    for i, full in enumerate(chosen):
        name = f"blk.{i}"
        w.norm(f"{name}.attn_norm", hidden)
        w.norm(f"{name}.ffn_norm", hidden)
        for norm in ("post_attention_norm", "post_ffw_norm"):  # without ".weight", as the converter writes them
            w.vector(f"{name}.{norm}", hidden, 0.8, 1.2)
        w.matrix(f"{name}.ffn_up", 2 * width, hidden)
        w.matrix(f"{name}.ffn_down", hidden, width)
        if full:
            w.matrix(f"{name}.attn_qkv", (heads + 2 * kv_heads) * dim, hidden)
            w.matrix(f"{name}.attn_output", hidden, heads * dim)
            w.vector(f"{name}.attn_q_norm.weight", (heads, dim), 0.8, 1.2)
            w.vector(f"{name}.attn_k_norm.weight", (kv_heads, dim), 0.8, 1.2)
            continue
        w.matrix(f"{name}.ssm_in", 2 * inner, hidden)
        w.vector(f"{name}.ssm_conv1d.weight", (inner, 4), -0.5, 0.5)
        w.matrix(f"{name}.ssm_x", rank + 2 * state, inner)
        for part, size in (("dt", rank), ("b", state), ("c", state)):
            w.vector(f"{name}.ssm_{part}_norm", size, 0.8, 1.2)
        w.vector(f"{name}.ssm_dt.weight", (ssm_heads, rank), -0.05, 0.05)
        w.vector(f"{name}.ssm_dt.bias", ssm_heads, -4, -1)
        w.vector(f"{name}.ssm_a", ssm_heads, -8, -1)
        w.vector(f"{name}.ssm_d", ssm_heads, 0.5, 1)
        w.matrix(f"{name}.ssm_out", hidden, inner)
    w.ends(hidden, layers)


def rwkv7(w, layers):  # RWKV-7-0.1B
    hidden, width, dim = 768, 3072, 64
    ranks = {"w": 64, "a": 64, "v": 32, "g": 128}
    w.key("feed_forward_length", width)
    w.key("attention.head_count", 0)
    w.key("attention.layer_norm_epsilon", EPS)
    w.key("wkv.head_size", dim)
    for part, name in (("w", "decay"), ("a", "iclr"), ("v", "value_residual_mix"), ("g", "gate")):
        w.key(f"attention.{name}_lora_rank", ranks[part])
    w.norm("token_embd_norm", hidden, bias=True)
    for i in range(layers):
        name = f"blk.{i}"
        w.norm(f"{name}.attn_norm", hidden, bias=True)
        w.norm(f"{name}.attn_norm_2", hidden, bias=True)
        w.norm(f"{name}.time_mix_ln", hidden, bias=True)
        w.vector(f"{name}.time_mix_lerp_fused.weight", (6, 1, 1, hidden), 0, 1)
        for part in ("receptance", "key", "value", "output"):
            w.matrix(f"{name}.time_mix_{part}", hidden, hidden)
        for part, rank in ranks.items():
            rank = ranks["a"] if part == "v" and i == 0 else rank  # the first layer's are not used
            w.vector(f"{name}.time_mix_{part}1.weight", (rank, hidden), -0.05, 0.05)
            w.vector(f"{name}.time_mix_{part}2.weight", (hidden, rank), -0.1, 0.1)
            if part != "g":
                w.vector(f"{name}.time_mix_{part}0.weight", hidden, -2, 1)
        w.vector(f"{name}.time_mix_k_k.weight", hidden, 0.5, 1)
        w.vector(f"{name}.time_mix_k_a.weight", hidden, 0.5, 1)
        w.vector(f"{name}.time_mix_r_k.weight", hidden, -0.2, 0.2)
        w.vector(f"{name}.channel_mix_lerp_k.weight", hidden, 0, 1)
        w.matrix(f"{name}.channel_mix_key", width, hidden)
        w.matrix(f"{name}.channel_mix_value", hidden, width)
    w.ends(hidden, layers, bias=True)


# The architecture, the published number of layers, who writes it.
FAMILIES = {"granite-h": ("granitehybrid", 32, granite), "bamba": ("granitehybrid", 32, bamba), "falcon-h1": ("falcon-h1", 36, falcon_h1),
            "nemotron-h": ("nemotron_h", 52, nemotron_h), "jamba": ("jamba", 28, jamba),
            "mamba2": ("mamba2", 24, mamba2), "plamo2": ("plamo2", 16, plamo2), "rwkv7": ("rwkv7", 12, rwkv7)}


def options(text, models):
    """The command line of a script that writes models."""
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=text)
    parser.add_argument("vocabulary")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(models) + " (default: all)")
    parser.add_argument("--layers", type=int, help="the first layers only")
    return parser.parse_args()


def main():
    a = options(__doc__, FAMILIES)
    vocabulary = gguf.GGUFReader(a.vocabulary)
    for family in a.models or FAMILIES:
        architecture, layers, write = FAMILIES[family]
        path = a.out / f"{family}-Q8_0.gguf"
        w = Writer(path, architecture, vocabulary)
        write(w, min(layers, a.layers or layers))
        w.close()
        print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
