"""Quire's tokenizers against the library `tokenizers`: vocabularies of every kind, in both forms of the same model's files.

usage: vocabulary_test.py CHECK recorded
       vocabulary_test.py CHECK library [--texts N] [--real FOLDER] [--out FOLDER] [NAME...]
       vocabulary_test.py record

CHECK is quire_vocabulary_check. `recorded` compares with references that `record` stored: a few texts for each vocabulary of
made_vocabularies.py. `library` compares N texts each (default: 10,000) with what the library makes of them now, also
for published vocabularies: FOLDER/NAME/tokenizer.json or FOLDER/NAME/models/tokenizer.json; the default is the folder that
../real/fetch.sh fills. NAME is one vocabulary (default: all). With --out, the files stay in FOLDER. `library` and `record`
need the library; $QUIRE_TOKENIZERS_PYTHON names a Python that has it.
Exit status: 77 without it.
"""
import argparse
import gzip
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from gguf_vocabulary import write_gguf
from made_vocabularies import files_of, gguf_forms, vocabularies

RECORDED = pathlib.Path(__file__).resolve().parent / "vocabulary_references.jsonl.gz"
RECORDED_TEXTS = 5
SKIPPED = 77
PUBLISHED = {"gemma3": "scores", "llama2": "scores", "llama3_1": "llama-bpe", "qwen3": "qwen2", "deepseek_v3": "deepseek-v3",
             "gptoss": "gpt-4o"}  # the form of the GGUF


def digest(document):
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()[:16]


def check(program, folder, names=()):
    return subprocess.run([program, folder, *names], check=False).returncode


def recorded(program, out):
    documents = vocabularies()
    with gzip.open(RECORDED, "rt") as lines:
        entries = {entry["name"]: entry for entry in map(json.loads, lines)}
    if set(entries) != set(documents):
        sys.exit("vocabulary_test.py: other vocabularies than recorded; run it with `record`")
    for name, document in documents.items():
        entry = entries[name]
        if entry["digest"] != digest(document):
            sys.exit(f"vocabulary_test.py: {name} is not what was recorded; run it with `record`")
        for file, kind in zip(files_of(name, document), ("tokenizer", "tokenizer_config")):
            (out / f"{name}.{kind}.json").write_text(json.dumps(file))
        for ending, references in entry["references"].items():
            (out / f"{name}.{ending}").write_text("".join(json.dumps(row) + "\n" for row in references))
        for form in gguf_forms(name):
            write_gguf(out / f"{name}.{form}.gguf", document, form)
    return check(program, out)


def with_library():
    """The module vocabularies, which needs the library; runs this script again where another Python has it."""
    try:
        import vocabularies as module
        return module
    except ModuleNotFoundError:
        python = os.environ.pop("QUIRE_TOKENIZERS_PYTHON", "")
        if python:
            os.execv(python, [python, *sys.argv])
        print("skipped: no library `tokenizers` here, and QUIRE_TOKENIZERS_PYTHON names no Python that has it")
        sys.exit(SKIPPED)


def library(program, out, arguments):
    module = with_library()
    documents = vocabularies()
    names = arguments.name or [*documents, *PUBLISHED]
    made = [name for name in names if name in documents]
    if made:
        module.write_made(out, made, arguments.texts)
    missing = []
    for name in names:
        if name in PUBLISHED:
            files = [arguments.real / name / path for path in ("tokenizer.json", "models/tokenizer.json")]
            found = next((file for file in files if file.exists()), None)
            if found:
                module.write_published(out, PUBLISHED[name], found, arguments.texts)
            else:
                missing.append(name)
    status = check(program, out, arguments.name)
    if missing:
        print(f"skipped, not in {arguments.real}: {', '.join(missing)}")
    return status


def record():
    module = with_library()
    rows = []
    with tempfile.TemporaryDirectory(prefix="quire-vocabularies-") as folder:
        out = pathlib.Path(folder)
        module.write_made(out, [], RECORDED_TEXTS)
        for name, document in vocabularies().items():
            row = {"name": name, "digest": digest(document), "references": {}}
            for path in sorted(out.glob(f"{name}.*ids.jsonl")):
                row["references"][path.name.removeprefix(name + ".")] = [json.loads(line) for line in path.read_text().splitlines()]
            rows.append(json.dumps(row, separators=(",", ":")) + "\n")
    RECORDED.write_bytes(gzip.compress("".join(rows).encode(), 9, mtime=0))


def fetched():
    """Where ../real/fetch.sh moves what it fetches."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(os.environ.get("QUIRE_REAL") or pathlib.Path(cache) / "quire-real")


def main():
    if sys.argv[1:] == ["record"]:
        return record()
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("check", type=pathlib.Path)
    parser.add_argument("mode", choices=["recorded", "library"])
    parser.add_argument("--texts", type=int, default=10000)
    parser.add_argument("--real", type=pathlib.Path, default=fetched() / "vocabularies")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("name", nargs="*")
    arguments = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory(prefix="quire-vocabularies-") as folder:
        out = arguments.out or pathlib.Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        if arguments.mode == "recorded":
            return recorded(arguments.check.resolve(), out)
        return library(arguments.check.resolve(), out, arguments)


if __name__ == "__main__":
    sys.exit(main())
