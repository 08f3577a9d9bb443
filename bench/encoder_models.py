#!/usr/bin/env python3
"""GGUF files of text encoders with random weights and the layer shapes of published models, for bench/embed_bench.py.

  bench/encoder_models.py OUT [bge-small|nomic ...]

Run with a Python that has numpy and gguf-py. Writes a Q8_0 and an F16 file of each. The vocabulary is WordPiece's of the size
of BERT's: the words of embed_bench.py, letters, and numbered fillers. The shapes are written from memory of the published
configurations.
"""
import argparse
import pathlib
import string

import gguf
import numpy as np

from embed_bench import WORDS

VOCABULARY = 30522
TYPES = {"Q8_0": gguf.GGMLQuantizationType.Q8_0, "F16": gguf.GGMLQuantizationType.F16}


class Writer:
    """One file: keys and tensors of random numbers, matrices in one type."""

    def __init__(self, path, architecture, kind):
        self.file = gguf.GGUFWriter(str(path), architecture)
        self.random = np.random.default_rng(7)
        self.kind = kind

    def matrix(self, name, out, into, gain=1.0):
        values = self.random.standard_normal((out, into), dtype=np.float32) * np.float32(gain / into ** 0.5)
        self.file.add_tensor(f"{name}.weight", gguf.quants.quantize(values, self.kind), raw_dtype=self.kind)

    def vector(self, name, size, low, high):
        self.file.add_tensor(name, self.random.uniform(low, high, size).astype(np.float32))

    def norm(self, name, size):
        self.vector(f"{name}.weight", size, 0.8, 1.2)
        self.vector(f"{name}.bias", size, -0.1, 0.1)

    def tokenizer(self):
        # In a GGUF file a word begins with U+2581, and what goes on within a word has no mark.
        begins = [f"\u2581{word}" for word in WORDS + list(string.ascii_lowercase + string.digits)]
        tokens = ["[PAD]", *(f"[unused{i}]" for i in range(99)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        special = len(tokens)
        tokens += dict.fromkeys(begins + list(string.ascii_lowercase + string.digits))
        tokens += [f"\u2581filler{i}" for i in range(VOCABULARY - len(tokens))]
        control, normal = int(gguf.TokenType.CONTROL), int(gguf.TokenType.NORMAL)
        file = self.file
        file.add_tokenizer_model("bert")
        file.add_tokenizer_pre("jina-v2-en")
        file.add_token_list(tokens)
        file.add_token_scores([-1000.0] * len(tokens))
        file.add_token_types([control if i < special else normal for i in range(len(tokens))])
        file.add_token_type_count(2)
        for add, name in ((file.add_unk_token_id, "[UNK]"), (file.add_sep_token_id, "[SEP]"), (file.add_pad_token_id, "[PAD]"),
                          (file.add_mask_token_id, "[MASK]"), (file.add_bos_token_id, "[CLS]"), (file.add_eos_token_id, "[SEP]")):
            add(tokens.index(name))

    def ends(self, hidden, layers, heads, width, context, pooling):
        file = self.file
        file.add_context_length(context)
        file.add_embedding_length(hidden)
        file.add_block_count(layers)
        file.add_feed_forward_length(width)
        file.add_head_count(heads)
        file.add_layer_norm_eps(1e-12)
        file.add_causal_attention(False)
        file.add_pooling_type(pooling)
        self.tokenizer()
        self.matrix("token_embd", VOCABULARY, hidden, hidden ** 0.5 * 0.05)
        self.vector("token_types.weight", (2, hidden), -0.05, 0.05)
        self.norm("token_embd_norm", hidden)

    def close(self):
        self.file.write_header_to_file()
        self.file.write_kv_data_to_file()
        self.file.write_tensors_to_file()
        self.file.close()


def bge_small(out, name, kind):
    hidden, layers, heads, width, context = 384, 12, 12, 1536, 512
    w = Writer(out / f"bge-small-{name}.gguf", "bert", kind)
    w.ends(hidden, layers, heads, width, context, gguf.PoolingType.CLS)
    w.vector("position_embd.weight", (context, hidden), -0.05, 0.05)
    for i in range(layers):
        for part, rows, columns in (("attn_q", hidden, hidden), ("attn_k", hidden, hidden), ("attn_v", hidden, hidden),
                                    ("attn_output", hidden, hidden), ("ffn_up", width, hidden), ("ffn_down", hidden, width)):
            w.matrix(f"blk.{i}.{part}", rows, columns)
            w.vector(f"blk.{i}.{part}.bias", rows, -0.05, 0.05)
        w.norm(f"blk.{i}.attn_output_norm", hidden)
        w.norm(f"blk.{i}.layer_output_norm", hidden)
    w.close()


def nomic(out, name, kind):
    hidden, layers, heads, width = 768, 12, 12, 3072
    w = Writer(out / f"nomic-{name}.gguf", "nomic-bert", kind)
    w.ends(hidden, layers, heads, width, 2048, gguf.PoolingType.MEAN)
    w.file.add_rope_freq_base(1000.0)
    for i in range(layers):
        for part, rows, columns in (("attn_qkv", 3 * hidden, hidden), ("attn_output", hidden, hidden), ("ffn_gate", width, hidden),
                                    ("ffn_up", width, hidden), ("ffn_down", hidden, width)):
            w.matrix(f"blk.{i}.{part}", rows, columns)
        w.norm(f"blk.{i}.attn_output_norm", hidden)
        w.norm(f"blk.{i}.layer_output_norm", hidden)
    w.close()


MODELS = {"bge-small": bge_small, "nomic": nomic}


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("models", nargs="*", default=list(MODELS))
    a = parser.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    for model in a.models:
        for name, kind in TYPES.items():
            MODELS[model](a.out, name, kind)


if __name__ == "__main__":
    main()
