"""What SentencePiece itself makes of the texts of vocabularies.py, for vocabularies whose GGUF has scores.

usage: sentencepiece_ids.py OUT NAME...

The model is made of OUT/NAME.tokenizer.json: normal pieces in the order of their ids and those of spaces alone behind them, as
trained models have them, the others by their kind. OUT/NAME.gguf.ids.jsonl has a line for each text of OUT/NAME.ids.jsonl that contains no control token, which
SentencePiece does not find in texts. It tells how many ids differ from those of the library `tokenizers`.
"""
import json
import pathlib
import struct
import sys

import sentencepiece

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
BPE = 2


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def model_of(document):
    entries = {number: (text, NORMAL) for text, number in document["model"]["vocab"].items()}
    for token in document["added_tokens"]:
        kind = UNKNOWN if token["content"] == "<unk>" else CONTROL if token["special"] else USER_DEFINED
        entries[token["id"]] = (token["content"], kind)
    pieces = b""
    for number in range(max(entries) + 1):
        text, kind = entries[number]
        if text == "\t" and "<0x09>" not in document["model"]["vocab"]:
            text = "<0x09>"  # tokenizer.json of Gemma spells out one of its bytes
        if kind == NORMAL and len(text) == 6 and text.startswith("<0x"):
            kind = BYTE
        score = 0.0 if kind != NORMAL else float(-number) if text.strip("\u2581") else -1e9
        pieces += field(1, field(1, text.encode()) + field(2, score) + field(3, kind))
    prefix = any(n.get("type") == "Prepend" for n in document["normalizer"].get("normalizers", []))
    normalizer = field(1, b"identity") + field(3, int(prefix)) + field(4, 0) + field(5, 1)
    return pieces + field(2, field(3, BPE) + field(35, 1)) + field(3, normalizer)


def main():
    out = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:]:
        document = json.loads((out / f"{name}.tokenizer.json").read_text())
        processor = sentencepiece.SentencePieceProcessor(model_proto=model_of(document))
        control = [token["content"] for token in document["added_tokens"] if token["special"]]
        texts = differ = 0
        with open(out / f"{name}.ids.jsonl") as recorded, open(out / f"{name}.gguf.ids.jsonl", "w") as lines:
            for entry in map(json.loads, recorded):
                if any(token in entry["text"] for token in control):
                    continue
                ids = processor.encode(entry["text"])
                texts += 1
                differ += ids != entry["ids"]
                lines.write(json.dumps({"text": entry["text"], "ids": ids, "decoded": None}, separators=(",", ":")) + "\n")
        print(f"{name}: {texts} texts, {differ} differ from tokenizer.json")


if __name__ == "__main__":
    main()
