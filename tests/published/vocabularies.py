"""Published vocabularies as the tokenizer tests read them: what the library `tokenizers` makes of many texts.

usage: vocabularies.py OUT PRE=TOKENIZER_JSON...

For each file, OUT/NAME.gguf is the vocabulary as llama.cpp's converter writes it, with PRE as tokenizer.ggml.pre ("merges": a
vocabulary of SentencePiece with merges, as Gemma 4 has; "scores": one with scores, which fall with the ids, as Llama 2 and Gemma
2 have; "-": a tokenizer that GGUF cannot describe), OUT/NAME.tokenizer.json a copy, and OUT/NAME.ids.jsonl has a line
for each text: {"text", "ids"}. NAME is that of the folder two above the file, or of the file. ranks.mjs writes tokenizer.json of
vocabularies in other forms, sentencepiece_ids.py OUT/NAME.gguf.ids.jsonl with the ids of SentencePiece. Then
`QUIRE_VOCABULARIES=OUT quire_tokenizer_test --gtest_filter='PublishedVocabulary*'`. Texts of fixtures are read from
$QUIRE_TEXTS (JSON files with "cases": [{"text"}]); 10,000 more are random. The vocabularies are not ours to distribute.
"""
import json
import os
import pathlib
import random
import struct
import sys
import unicodedata

import tokenizers

TEXTS = 10000
RANGES = [(0x20, 0x7E), (0x20, 0x7E), (0x61, 0x7A), (0x30, 0x39), (0x41, 0x5A), (0xA0, 0x17F), (0x300, 0x36F), (0x370, 0x52F),
          (0x5D0, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x2000, 0x206F), (0x2100, 0x21FF), (0x3000, 0x30FF),
          (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFF00, 0xFFEF), (0x1F300, 0x1F64F), (0x10400, 0x1044F)]
WORDS = ["the", " the", "don't", " I'LL", "'s", "\n", "\n\n", "\r\n", "  ", "\t", " ", "1234567", "3.14", "...", "==", "/*", "http://a.b/c?d=e",
         "def f(x):\n    return x", "\u4f60\u597d", "\u00e9", "e\u0301", "\U0001f642", "_a", "C++", "\u00a0", "\u3000", "fooBarBAZ"]


def random_text(draw):
    parts = []
    for _ in range(draw.randint(1, 12)):
        if draw.random() < 0.5:
            parts.append(draw.choice(WORDS))
        else:
            low, high = draw.choice(RANGES)
            parts.append("".join(chr(draw.randint(low, high)) for _ in range(draw.randint(1, 6))))
    # Unassigned characters change their properties from one version of Unicode to the next.
    return "".join(c for c in "".join(parts) if unicodedata.category(c) not in ("Cn", "Cs", "Co"))


def fixture_texts():
    for path in sorted(pathlib.Path(os.environ.get("QUIRE_TEXTS", "/none")).glob("*.json")):
        for case in json.loads(path.read_text()).get("cases", []) if "tokenizer" not in path.name else []:
            yield case["text"]


def packed_text(text):
    raw = text.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(raw)) + raw


def write_gguf(path, document, pre):
    model = document["model"]
    entries = {number: (text, 1) for text, number in model["vocab"].items()}
    for token in document["added_tokens"]:
        entries[token["id"]] = (token["content"], 3 if token["special"] else 4)
    merged = pre in ("merges", "scores")
    tokens, types = [], []
    for i in range(max(entries) + 1):
        text, kind = entries.get(i, (f"[PAD{i}]", 5))
        if pre == "scores" and text == "\t" and "<0x09>" not in model["vocab"]:
            text = "<0x09>"
        if merged and len(text) == 6 and text.startswith("<0x"):
            kind = 6
        if merged and text == "<unk>":
            kind = 2
        tokens.append(text)
        types.append(kind)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    pairs = [("general.architecture", 8, packed_text("llama")),
             ("tokenizer.ggml.model", 8, packed_text({"merges": "gemma4", "scores": "llama"}.get(pre, "gpt2"))),
             ("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, len(tokens)) + b"".join(map(packed_text, tokens))),
             ("tokenizer.ggml.token_type", 9, struct.pack(f"<IQ{len(types)}i", 5, len(types), *types))]
    if pre == "scores":
        # Pieces of spaces alone come last.
        scores = [0.0 if kind != 1 else -1e9 if not text.strip("\u2581") else -float(i)
                  for i, (text, kind) in enumerate(zip(tokens, types))]
        pairs.append(("tokenizer.ggml.scores", 9, struct.pack(f"<IQ{len(scores)}f", 6, len(scores), *scores)))
    else:
        pairs.append(("tokenizer.ggml.merges", 9, struct.pack("<IQ", 8, len(merges)) + b"".join(map(packed_text, merges))))
    if merged:
        prefix = any(n.get("type") == "Prepend" for n in document["normalizer"].get("normalizers", []))
        pairs.append(("tokenizer.ggml.add_space_prefix", 7, bytes([prefix])))
    else:
        pairs.append(("tokenizer.ggml.pre", 8, packed_text(pre)))
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs))
    for key, kind, payload in pairs:
        out += packed_text(key) + struct.pack("<I", kind) + payload
    path.write_bytes(out)


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for argument in sys.argv[2:]:
        pre, _, file = argument.partition("=")
        file = pathlib.Path(file)
        name = file.parents[2].name if file.name == "tokenizer.json" else file.name.split(".")[0]
        document = json.loads(file.read_text())
        (out / f"{name}.tokenizer.json").write_text(file.read_text())
        if pre != "-":
            write_gguf(out / f"{name}.gguf", document, pre)
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        draw = random.Random(f"quire {name}")
        with open(out / f"{name}.ids.jsonl", "w") as lines:
            for text in [*fixture_texts(), *(random_text(draw) for _ in range(TEXTS))]:
                ids = tokenizer.encode(text, add_special_tokens=False).ids
                lines.write(json.dumps({"text": text, "ids": ids}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
