#!/usr/bin/env python3
"""GGUF files of families with experts or latent attention, with random blocks and the layer shapes of published models.

  bench/moe_models.py VOCABULARY.gguf OUT [MODEL ...] [--layers N]

Run with a Python that has numpy and gguf-py. VOCABULARY.gguf is any file with a tokenizer, which is copied: its size is the
size of embedding and output. Blocks are random bytes with scales that give rows of length one, so that nothing is
quantized and a file is written as fast as the disk takes it; matrices of one shape have the same blocks in every layer. The shapes
are written from memory of the published configurations.
"""
import math
import pathlib

import gguf
import numpy as np

from hybrid_models import Writer, options

Kind = gguf.GGMLQuantizationType


def half(value):
    return np.frombuffer(np.float16(value).tobytes(), np.uint8)


def set_scales(kind, blocks, deviation):
    """Makes numbers of this standard deviation of random blocks [count, bytes]."""
    if kind == Kind.Q4_K:  # 40 d (q - 7.5), q of [0, 16)
        blocks[:, 0:2] = half(deviation / (40 * 4.61))
        blocks[:, 2:4] = half(deviation / (40 * 4.61) * 7.5)
        blocks[:, 4:12], blocks[:, 12:16] = 168, 136  # eight scales and eight min offsets of 40
    elif kind == Kind.Q6_K:  # 8 d (q - 32), q of [0, 64)
        blocks[:, 192:208] = 8
        blocks[:, 208:210] = half(deviation / (8 * 18.5))
    elif kind == Kind.Q8_0:  # d q, q of [-128, 128)
        blocks[:, 0:2] = half(deviation / 73.9)
    else:  # MXFP4: 2^(e - 128) times one of 16 numbers
        blocks[:, 0] = round(128 + math.log2(deviation / 5.85))


class BlockWriter(Writer):
    """Matrices of random blocks; `kind_of(name)` chooses their type."""

    def __init__(self, path, architecture, vocabulary, kind_of):
        super().__init__(path, architecture, vocabulary)
        self.kind_of = kind_of
        self.made = {}
        self.file.add_quantization_version(gguf.GGML_QUANT_VERSION)

    def matrix(self, name, out, into, gain=1.0, stacked=()):
        kind = self.kind_of(name)
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        if into % elements != 0:
            kind = Kind.Q8_0
            elements, size = gguf.GGML_QUANT_SIZES[kind]
        shape = (*stacked, out, into // elements * size)
        key = (kind, shape, gain)
        if key not in self.made:
            blocks = np.frombuffer(self.random.bytes(math.prod(shape)), np.uint8).reshape(-1, size).copy()
            set_scales(kind, blocks, gain / into ** 0.5)
            self.made[key] = blocks.reshape(shape)
        self.file.add_tensor(f"{name}.weight", self.made[key], raw_dtype=kind)

    def biases(self, name, shape):
        self.vector(f"{name}.bias", shape, -0.1, 0.1)

    def router(self, name, experts, hidden):
        values = self.random.standard_normal((experts, hidden), dtype=np.float32) / np.float32(hidden ** 0.5)
        self.file.add_tensor(f"{name}.ffn_gate_inp.weight", values)

    def experts(self, name, count, hidden, width):
        self.matrix(f"{name}.ffn_gate_exps", width, hidden, stacked=(count,))
        self.matrix(f"{name}.ffn_up_exps", width, hidden, stacked=(count,))
        self.matrix(f"{name}.ffn_down_exps", hidden, width, stacked=(count,))

    def expert_keys(self, count, used, width):
        self.key("expert_count", count)
        self.key("expert_used_count", used)
        self.key("expert_feed_forward_length", width)

    def head_keys(self, heads, kv_heads, key_length, value_length):
        self.key("attention.head_count", heads)
        self.key("attention.head_count_kv", kv_heads)
        self.key("attention.key_length", key_length)
        self.key("attention.value_length", value_length)


def q4_k_m(layers):
    """Which type llama-quantize's preset gives a matrix."""
    def kind(name):
        if name == "output":
            return Kind.Q6_K
        if not name.endswith(("attn_v", "ffn_down_exps", "ffn_down")):
            return Kind.Q4_K
        layer = int(name.split(".")[1])
        more = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
        return Kind.Q6_K if more else Kind.Q4_K
    return kind


def mxfp4_experts(_):
    return lambda name: Kind.MXFP4 if name.endswith("_exps") else Kind.Q8_0


def qwen3_30b_a3b(w, layers):
    hidden, heads, kv_heads, dim, experts, used, width = 2048, 32, 4, 128, 128, 8, 768
    w.head_keys(heads, kv_heads, dim, dim)
    w.expert_keys(experts, used, width)
    w.key("feed_forward_length", 6144)
    w.key("attention.layer_norm_rms_epsilon", 1e-6)
    w.key("rope.freq_base", 1e6)
    for i in range(layers):
        name = f"blk.{i}"
        w.norm(f"{name}.attn_norm", hidden)
        w.norm(f"{name}.ffn_norm", hidden)
        w.norm(f"{name}.attn_q_norm", dim)
        w.norm(f"{name}.attn_k_norm", dim)
        w.attention(name, hidden, heads, kv_heads, dim)
        w.router(name, experts, hidden)
        w.experts(name, experts, hidden, width)
    w.ends(hidden, layers)


def gpt_oss_20b(w, layers):
    hidden, heads, kv_heads, dim, experts, used = 2880, 64, 8, 64, 32, 4
    w.head_keys(heads, kv_heads, dim, dim)
    w.expert_keys(experts, used, hidden)
    w.key("feed_forward_length", hidden)
    w.key("attention.layer_norm_rms_epsilon", 1e-5)
    w.key("attention.sliding_window", 128)
    w.key("rope.freq_base", 150000.0)
    w.key("rope.dimension_count", dim)
    w.file.add_string("gpt-oss.rope.scaling.type", "yarn")
    w.key("rope.scaling.factor", 32.0)
    w.key("rope.scaling.original_context_length", 4096)
    for i in range(layers):
        name = f"blk.{i}"
        w.norm(f"{name}.attn_norm", hidden)
        w.norm(f"{name}.post_attention_norm", hidden)
        w.attention(name, hidden, heads, kv_heads, dim)
        for part, out in (("q", heads * dim), ("k", kv_heads * dim), ("v", kv_heads * dim), ("output", hidden)):
            w.biases(f"{name}.attn_{part}", out)
        w.vector(f"{name}.attn_sinks.weight", heads, -1, 1)
        w.router(name, experts, hidden)
        w.biases(f"{name}.ffn_gate_inp", experts)
        w.experts(name, experts, hidden, hidden)
        for part in ("gate", "up", "down"):
            w.biases(f"{name}.ffn_{part}_exps", (experts, hidden))
    w.ends(hidden, layers)


def deepseek_v3(w, layers, hidden=7168, heads=128, width=18432):  # without the layers that have experts
    query_rank, latent, rotated, plain, value = 1536, 512, 64, 128, 128
    w.head_keys(heads, 1, latent + rotated, latent)
    w.key("attention.key_length_mla", plain + rotated)
    w.key("attention.value_length_mla", value)
    w.key("attention.q_lora_rank", query_rank)
    w.key("attention.kv_lora_rank", latent)
    w.key("attention.layer_norm_rms_epsilon", 1e-6)
    w.expert_keys(256, 8, 2048)
    w.key("expert_shared_count", 1)
    w.key("expert_gating_func", 2)
    w.key("expert_weights_scale", 2.5)
    w.key("expert_weights_norm", True)
    w.key("leading_dense_block_count", layers)
    w.key("feed_forward_length", width)
    w.key("rope.freq_base", 10000.0)
    w.key("rope.dimension_count", rotated)
    for i in range(layers):
        name = f"blk.{i}"
        w.norm(f"{name}.attn_norm", hidden)
        w.norm(f"{name}.ffn_norm", hidden)
        w.norm(f"{name}.attn_q_a_norm", query_rank)
        w.norm(f"{name}.attn_kv_a_norm", latent)
        w.matrix(f"{name}.attn_q_a", query_rank, hidden)
        w.matrix(f"{name}.attn_q_b", heads * (plain + rotated), query_rank)
        w.matrix(f"{name}.attn_kv_a_mqa", latent + rotated, hidden)
        w.matrix(f"{name}.attn_k_b", latent, plain, stacked=(heads,))
        w.matrix(f"{name}.attn_v_b", value, latent, stacked=(heads,))
        w.matrix(f"{name}.attn_output", hidden, heads * value)
        w.mlp(name, hidden, width)
    w.ends(hidden, layers)


def kimi_linear(w, layers):  # Kimi-Linear-48B-A3B: every fourth layer has latent attention, the others delta nets
    hidden, heads, dim, latent, rotated, experts, used, width = 2304, 32, 128, 512, 64, 256, 8, 1024
    attends = [i % 4 == 3 for i in range(layers)]
    w.head_keys(heads, [int(a) for a in attends], latent + rotated, latent)
    w.key("attention.key_length_mla", dim + rotated)
    w.key("attention.value_length_mla", dim)
    w.key("attention.kv_lora_rank", latent)
    w.key("attention.layer_norm_rms_epsilon", 1e-5)
    w.key("kda.head_dim", dim)
    w.key("ssm.conv_kernel", 4)
    w.expert_keys(experts, used, width)
    w.key("expert_shared_count", 1)
    w.key("expert_gating_func", 2)
    w.key("expert_weights_scale", 2.446)
    w.key("expert_weights_norm", True)
    w.key("leading_dense_block_count", 1)
    w.key("feed_forward_length", 9216)
    w.key("rope.freq_base", 10000.0)
    w.key("rope.dimension_count", rotated)
    for i, attends_here in enumerate(attends):
        name = f"blk.{i}"
        w.norm(f"{name}.attn_norm", hidden)
        w.norm(f"{name}.ffn_norm", hidden)
        if attends_here:
            w.norm(f"{name}.attn_kv_a_norm", latent)
            w.matrix(f"{name}.attn_q", heads * (dim + rotated), hidden)
            w.matrix(f"{name}.attn_kv_a_mqa", latent + rotated, hidden)
            w.matrix(f"{name}.attn_k_b", latent, dim, stacked=(heads,))
            w.matrix(f"{name}.attn_v_b", dim, latent, stacked=(heads,))
        else:
            for part in "qkv":
                w.matrix(f"{name}.attn_{part}", heads * dim, hidden)
                w.vector(f"{name}.ssm_conv1d_{part}.weight", (1, heads * dim, 1, 4), -0.5, 0.5)
            for part in "fg":
                w.matrix(f"{name}.ssm_{part}_a", dim, hidden)
                w.matrix(f"{name}.ssm_{part}_b", heads * dim, dim)
            w.matrix(f"{name}.ssm_beta", heads, hidden)
            w.vector(f"{name}.ssm_a", (heads, 1), -8, -1)
            w.vector(f"{name}.ssm_dt.bias", heads * dim, -4, -1)
            w.norm(f"{name}.ssm_norm", dim)
        w.matrix(f"{name}.attn_output", hidden, heads * dim)
        if i == 0:
            w.mlp(name, hidden, 9216)
            continue
        w.router(name, experts, hidden)
        w.vector(f"{name}.exp_probs_b.bias", experts, -0.1, 0.1)
        w.experts(name, experts, hidden, width)
        for part, out, into in (("gate", width, hidden), ("up", width, hidden), ("down", hidden, width)):
            w.matrix(f"{name}.ffn_{part}_shexp", out, into)
    w.ends(hidden, layers)


def qwen38_flash_next(w, layers):  # every fourth layer attends to chosen blocks, the others are delta nets; the n-gram table is a small one
    hidden, heads, kv_heads, dim, rotated, streams, rank = 2048, 16, 2, 256, 64, 4, 320
    experts, used, width, key_heads, value_heads, ssm = 512, 10, 512, 16, 32, 128
    index_heads, index_dim, budget, ratio, grams, hashes, channels = 16, 128, 2048, 16, 3, 8, hidden // 16
    attends = [i % 4 == 3 for i in range(layers)]
    w.head_keys(heads, kv_heads, dim, dim)
    w.expert_keys(experts, used, width)
    w.key("expert_shared_feed_forward_length", width)
    w.key("attention.layer_norm_rms_epsilon", 1e-6)
    w.key("rope.freq_base", 1e7)
    w.key("rope.dimension_count", rotated)
    w.key("rope.dimension_sections", [11, 11, 10, 0])
    w.ssm_keys(value_heads * ssm, ssm, value_heads, key_heads)
    w.key("full_attention_interval", 4)
    w.key("attention.recurrent_layers", [not a for a in attends])
    w.key("hyper_connection.count", streams)
    w.key("hyper_connection.low_rank", rank)
    w.key("attention.indexer.head_count", index_heads)
    w.key("attention.indexer.key_length", index_dim)
    w.key("attention.indexer.top_k", budget)
    w.key("attention.compress_ratios", [ratio if a else 0 for a in attends])
    primes = [200003, 200009, 200017, 200023, 200029, 200033, 200041, 200063, 200087, 200117, 200131, 200153, 200159, 200171, 200177, 200183]
    offsets = [sum(primes[:i]) for i in range(len(primes))]
    for key, value in (("layers", [1]), ("ngram_size", grams), ("heads_per_ngram", hashes), ("conv_kernel", 4), ("eos_token_id", 2)):
        w.key(f"ple.{key}", value)
    for key, values in (("layer_multipliers", [4295158889763781, 17440218147737327, 1270917961434445]), ("head_offsets", offsets),
                        ("head_vocab_sizes", primes)):
        w.file.add_key_value(f"{w.file.arch}.ple.{key}", values, gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.UINT64)
    w.key("embedding_length_per_layer_input", channels)
    w.matrix("per_layer_token_embd", (sum(primes) + 127) // 128 * 128, channels)

    def connection(name, inject=True):
        w.norm(f"{name}_norm", streams * hidden)
        w.matrix(f"{name}_down", rank, streams * hidden)
        w.matrix(f"{name}_up", streams * hidden, rank)
        if inject:
            w.matrix(f"{name}_inject", streams, streams * hidden)
    for i, attends_here in enumerate(attends):
        name = f"blk.{i}"
        connection(f"{name}.hc_attn")
        connection(f"{name}.hc_ffn")
        if i == 1:
            w.matrix(f"{name}.ple_key", streams * hidden, 2 * hashes * channels)
            w.matrix(f"{name}.ple_value", hidden, 2 * hashes * channels)
            for part in ("norm_key", "norm_query", "norm_conv"):
                w.norm(f"{name}.ple_{part}", streams * hidden)
            w.vector(f"{name}.ple_conv1d.weight", (streams * hidden, 4), -0.5, 0.5)
        if attends_here:
            w.matrix(f"{name}.attn_q", 2 * heads * dim, hidden)
            for part in "kv":
                w.matrix(f"{name}.attn_{part}", kv_heads * dim, hidden)
            w.matrix(f"{name}.attn_output", hidden, heads * dim)
            for part in ("attn_q_norm", "attn_k_norm"):
                w.norm(f"{name}.{part}", dim)
            w.matrix(f"{name}.indexer.q_proj", index_heads * index_dim, hidden)
            w.matrix(f"{name}.indexer.k_proj", index_dim, hidden)
            for part in ("q_norm", "k_norm"):
                w.norm(f"{name}.indexer.{part}", index_dim)
        else:
            values = value_heads * ssm
            w.matrix(f"{name}.attn_qkv", 2 * key_heads * ssm + values, hidden)
            w.matrix(f"{name}.attn_gate", values, hidden)
            w.matrix(f"{name}.ssm_alpha", value_heads, hidden)
            w.matrix(f"{name}.ssm_beta", value_heads, hidden)
            w.vector(f"{name}.ssm_a", value_heads, -8, -1)
            w.vector(f"{name}.ssm_dt.bias", value_heads, -4, -1)
            w.vector(f"{name}.ssm_conv1d.weight", (2 * key_heads * ssm + values, 4), -0.5, 0.5)
            w.norm(f"{name}.ssm_norm", ssm)
            w.matrix(f"{name}.ssm_out", hidden, values)
        w.router(name, experts, hidden)
        w.experts(name, experts, hidden, width)
        for part, out, into in (("gate", width, hidden), ("up", width, hidden), ("down", hidden, width)):
            w.matrix(f"{name}.ffn_{part}_shexp", out, into)
        w.vector(f"{name}.ffn_gate_inp_shexp.weight", (1, hidden), -0.05, 0.05)
    w.key("context_length", 262144)
    w.key("embedding_length", hidden)
    w.key("block_count", layers)
    w.key("vocab_size", w.vocabulary)
    w.matrix("token_embd", w.vocabulary, hidden, hidden ** 0.5 * 0.5)
    w.matrix("output", w.vocabulary, hidden, 3)
    connection("output_hc", inject=False)


# The architecture, layers (published: 48, 24, 61, 48, 27; these fit into 8 GB), type of a matrix, suffix, who
# writes it.
MODELS = {"qwen3-30b-a3b": ("qwen3moe", 16, q4_k_m, "Q4_K_M", qwen3_30b_a3b),
          "gpt-oss-20b": ("gpt-oss", 12, mxfp4_experts, "MXFP4", gpt_oss_20b),
          "deepseek-v3": ("deepseek2", 3, q4_k_m, "Q4_K_M", deepseek_v3),
          "deepseek-16-heads": ("deepseek2", 3, q4_k_m, "Q4_K_M", lambda w, layers: deepseek_v3(w, layers, 2048, 16, 10944)),
          "qwen3.8-flash-next": ("qwen4exp", 8, q4_k_m, "Q4_K_M", qwen38_flash_next),
          "kimi-linear": ("kimi-linear", 4, lambda _: lambda name: Kind.Q8_0, "Q8_0", kimi_linear)}


def main():
    a = options(__doc__, MODELS)
    vocabulary = gguf.GGUFReader(a.vocabulary)
    for model in a.models or MODELS:
        architecture, layers, kinds, suffix, write = MODELS[model]
        layers = a.layers or layers
        path = a.out / f"{model}-{suffix}.gguf"
        w = BlockWriter(path, architecture, vocabulary, kinds(layers))
        write(w, layers)
        w.close()
        print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
