"""Vocabularies and what the library `tokenizers` makes of many texts with them, for quire_vocabulary_check.

usage: vocabularies.py OUT [--texts N] FORM=TOKENIZER_JSON... | made[=NAME]...

FORM=TOKENIZER_JSON is a published vocabulary. OUT/NAME.gguf is the vocabulary as llama.cpp's converter writes it, in that form of
gguf_vocabulary.py, or, for "-", does not exist: GGUF cannot describe the tokenizer. NAME is that of the file, or of the folder
of a package's models/tokenizer.json. `made` stands for the vocabularies of made_vocabularies.py, made=NAME for one of them.
For each, OUT/NAME.tokenizer.json
is the file, and OUT/NAME.ids.jsonl has a line for each text (vocabulary_check.cc has its form). Texts are N around the borders of added
tokens (default: 10,000), and of published vocabularies N of any script and those of fixtures: $QUIRE_TEXTS names a folder of JSON files
with "cases": [{"text"}]. ranks.mjs writes tokenizer.json of vocabularies in other forms, sentencepiece_ids.py
OUT/NAME.gguf.ids.jsonl with the ids of SentencePiece. Published vocabularies are not ours to distribute.
"""
import argparse
import json
import os
import pathlib
import random

os.environ["RUST_BACKTRACE"] = "0"
import tokenizers  # noqa: E402

from border_texts import border_texts, random_text
from gguf_vocabulary import as_gguf, write_gguf
from made_vocabularies import decodes_alike, files_of, gguf_forms, in_gguf, vocabularies

TEXTS = 10000
BATCH = 200


def fixture_texts():
    for path in sorted(pathlib.Path(os.environ.get("QUIRE_TEXTS", "/none")).glob("*.json")):
        for case in json.loads(path.read_text()).get("cases", []) if "tokenizer" not in path.name else []:
            yield case["text"]


def texts_around(name, document, count):
    """Published vocabularies have thousands of added tokens that look alike: some of them."""
    contents = [token["content"] for token in document["added_tokens"]]
    draw = random.Random(f"borders {name}")
    return border_texts(draw, contents if len(contents) < 300 else contents[:250] + draw.sample(contents, 50), count)


def encoded(tokenizer, texts):
    """(text, ids) of those that the library survives: it panics where a token takes white space that is another one."""
    for begin in range(0, len(texts), BATCH):
        batch = texts[begin:begin + BATCH]
        try:
            yield from zip(batch, (encoding.ids for encoding in tokenizer.encode_batch(batch, add_special_tokens=False)))
        except BaseException as error:  # a panic is no Exception
            if "bad split" not in str(error):
                raise
            if len(batch) > 1:
                yield from (pair for text in batch for pair in encoded(tokenizer, [text]))


def decoder_of(document):
    """The library's decoder. Of an added token that is normalized, version 0.23 decodes the normalized content, and does not
    know it as special; earlier versions decode the content that the file has, which holds here."""
    tokens = [{**token, "normalized": False} for token in document["added_tokens"]]
    return tokenizers.Tokenizer.from_str(json.dumps({**document, "added_tokens": tokens}))


def references(document, texts):
    """For each text {"text", "ids", "decoded", "skipped"}, without what vocabulary_check.cc takes for granted. Encoders write no text."""
    tokenizer, decoder = tokenizers.Tokenizer.from_str(json.dumps(document)), decoder_of(document)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    for entry in document["added_tokens"]:
        assert tokenizer.token_to_id(entry["content"]) == entry["id"], entry
    texts, ids = zip(*encoded(tokenizer, texts))
    if document["model"]["type"] == "WordPiece":
        return [{"text": text, "ids": row, "decoded": None} for text, row in zip(texts, ids)]
    decoded = decoder.decode_batch(ids, skip_special_tokens=False)
    skipped = decoder.decode_batch(ids, skip_special_tokens=True)
    return [{"text": text, "ids": row, **({} if whole == text else {"decoded": whole}), **({} if rest == whole else {"skipped": rest})}
            for text, row, whole, rest in zip(texts, ids, decoded, skipped)]


def write_lines(path, entries):
    with open(path, "w") as lines:
        for entry in entries:
            lines.write(json.dumps(entry, separators=(",", ":")) + "\n")


def write_vocabulary(out, name, document, files, forms, texts):
    """document: what both `files`, tokenizer.json and tokenizer_config.json, say. forms: {ending: form} of its GGUF files."""
    for file, kind in zip(files, ("tokenizer", "tokenizer_config")):
        (out / f"{name}.{kind}.json").write_text(json.dumps(file))
    write_lines(out / f"{name}.ids.jsonl", references(document, texts))
    for ending, form in forms.items():
        write_gguf(out / f"{name}.{ending}", document, form)
        kept = [text for text in texts if in_gguf(document, form, text)]
        if as_gguf(document, form) == document and kept == texts and decodes_alike(name):
            continue
        rows = references(as_gguf(document, form), kept)
        write_lines(out / f"{name}.{ending}.ids.jsonl", rows if decodes_alike(name) else [{**row, "decoded": None} for row in rows])


def name_of(file):
    """A package's tokenizer.json is in NAME/models or NAME/package/models."""
    if file.name != "tokenizer.json":
        return file.name.split(".")[0]
    return next(folder.name for folder in file.parents if folder.name not in ("models", "package"))


def write_published(out, form, file, count):
    name = name_of(file)
    document = json.loads(file.read_text())
    draw = random.Random(f"quire {name}")
    texts = [*fixture_texts(), *(random_text(draw) for _ in range(count)), *texts_around(name, document, count)]
    beside = file.with_name(file.name.replace("tokenizer.json", "tokenizer_config.json"))
    config = json.loads(beside.read_text()) if beside != file and beside.exists() else {}
    write_vocabulary(out, name, document, (document, config), {} if form == "-" else {"gguf": form}, texts)


def write_made(out, names, count):
    for name, document in vocabularies().items():
        if not names or name in names:
            forms = {f"{form}.gguf": form for form in gguf_forms(name)}
            write_vocabulary(out, name, document, files_of(name, document), forms, texts_around(name, document, count))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--texts", type=int, default=TEXTS)
    parser.add_argument("vocabulary", nargs="+")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for argument in arguments.vocabulary:
        form, _, value = argument.partition("=")
        if form == "made":
            write_made(arguments.out, [value] if value else [], arguments.texts)
        else:
            write_published(arguments.out, form, pathlib.Path(value), arguments.texts)


if __name__ == "__main__":
    main()
