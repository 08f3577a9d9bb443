#!/usr/bin/env python3
"""A model that sees: Gemma 3 1B's shape (Q8_0) and a SigLIP-400M tower for 896 x 896 pixels (F16), with random weights.

  bench/vision_models.py VOCABULARY.gguf OUT [--layers N] [--tower-layers N]

Writes OUT/vision-1b-Q8_0.gguf and OUT/mmproj-vision-1b-F16.gguf. Run with a Python that has numpy and gguf-py.
VOCABULARY.gguf is a file of Gemma 3 whose vocabulary has the tokens of images; its tokenizer is copied. The shapes are
written from memory of the published configurations.
"""
import argparse
import pathlib

import gguf
import numpy as np

from hybrid_models import Writer

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FEED_FORWARD, WINDOW = 1152, 26, 4, 1, 256, 6912, 512
TOWER_HIDDEN, TOWER_LAYERS, TOWER_HEADS, TOWER_FEED_FORWARD, IMAGE, PATCH = 1152, 27, 16, 4304, 896, 14


def write_text(path, vocabulary, layers):
    writer = Writer(path, "gemma3", vocabulary)
    for name, value in (("feed_forward_length", FEED_FORWARD), ("attention.head_count", HEADS), ("attention.head_count_kv", KV_HEADS),
                        ("attention.key_length", HEAD_DIM), ("attention.value_length", HEAD_DIM), ("attention.sliding_window", WINDOW),
                        ("attention.layer_norm_rms_epsilon", 1e-6), ("rope.freq_base", 1e6), ("context_length", 32768),
                        ("embedding_length", HIDDEN), ("block_count", layers), ("vocab_size", writer.vocabulary)):
        writer.key(name, value)
    writer.matrix("token_embd", writer.vocabulary, HIDDEN, 1)
    writer.norm("output_norm", HIDDEN)
    for layer in range(layers):
        name = f"blk.{layer}"
        writer.attention(name, HIDDEN, HEADS, KV_HEADS, HEAD_DIM)
        for part in ("attn_q_norm", "attn_k_norm"):
            writer.norm(f"{name}.{part}", HEAD_DIM)
        for part in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            writer.norm(f"{name}.{part}", HIDDEN)
        for part, out, into in (("gate", FEED_FORWARD, HIDDEN), ("up", FEED_FORWARD, HIDDEN), ("down", HIDDEN, FEED_FORWARD)):
            writer.matrix(f"{name}.ffn_{part}", out, into)
    writer.close()


def write_tower(path, layers):
    file = gguf.GGUFWriter(str(path), "clip")
    random = np.random.default_rng(11)
    file.add_type("mmproj")
    file.add_bool("clip.has_vision_encoder", True)
    file.add_string("clip.projector_type", "gemma3")
    file.add_bool("clip.use_gelu", True)
    for name, value in (("projection_dim", HIDDEN), ("image_size", IMAGE), ("patch_size", PATCH), ("embedding_length", TOWER_HIDDEN),
                        ("feed_forward_length", TOWER_FEED_FORWARD), ("block_count", layers), ("attention.head_count", TOWER_HEADS)):
        file.add_uint32(f"clip.vision.{name}", value)
    file.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    file.add_array("clip.vision.image_mean", [0.5] * 3)
    file.add_array("clip.vision.image_std", [0.5] * 3)

    def matrix(name, *shape):
        values = random.standard_normal(shape, dtype=np.float32) / np.float32(np.prod(shape[1:]) ** 0.5)
        file.add_tensor(f"{name}.weight", values.astype(np.float16))

    def vector(name, size, around):
        file.add_tensor(name, random.uniform(around - 0.1, around + 0.1, size).astype(np.float32))

    def linear(name, out, into):
        matrix(name, out, into)
        vector(f"{name}.bias", out, 0)

    def norm(name):
        vector(f"{name}.weight", TOWER_HIDDEN, 1)
        vector(f"{name}.bias", TOWER_HIDDEN, 0)

    matrix("v.patch_embd", TOWER_HIDDEN, 3, PATCH, PATCH)
    vector("v.patch_embd.bias", TOWER_HIDDEN, 0)
    positions = (IMAGE // PATCH) ** 2
    file.add_tensor("v.position_embd.weight", random.standard_normal((positions, TOWER_HIDDEN), dtype=np.float32) * np.float32(0.1))
    for layer in range(layers):
        name = f"v.blk.{layer}"
        norm(f"{name}.ln1")
        norm(f"{name}.ln2")
        for part in ("q", "k", "v", "out"):
            linear(f"{name}.attn_{part}", TOWER_HIDDEN, TOWER_HIDDEN)
        linear(f"{name}.ffn_up", TOWER_FEED_FORWARD, TOWER_HIDDEN)
        linear(f"{name}.ffn_down", TOWER_HIDDEN, TOWER_FEED_FORWARD)
    norm("v.post_ln")
    vector("mm.soft_emb_norm.weight", TOWER_HIDDEN, 1)
    matrix("mm.input_projection", TOWER_HIDDEN, HIDDEN)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vocabulary", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--tower-layers", type=int, default=TOWER_LAYERS)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    write_text(options.out / "vision-1b-Q8_0.gguf", gguf.GGUFReader(options.vocabulary), options.layers)
    write_tower(options.out / "mmproj-vision-1b-F16.gguf", options.tower_layers)


if __name__ == "__main__":
    main()
