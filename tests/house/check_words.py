#!/usr/bin/env python3
"""Checks the words of the tree against banned_words.txt and verbs.txt (docs/glossary.md). Prints every hit, exits 1 if any.

usage: check_words.py [ROOT]
"""
import fnmatch
import pathlib
import re
import sys

SUFFIXES = {".cc", ".h", ".inl", ".py", ".mjs", ".sh", ".md", ".txt", ".cmake", ".json", ".yml", ".service", ".socket",
            ".conf", ".in"}
NAMES = {"control", "rules", "postinst", "postrm", "prerm", "copyright"}
# Texts that are not ours, recorded data, and the files that must name what is banned.
EXEMPT = ["LICENSE", "tests/data/*", "tests/real/*.json", "tests/conformance/suite/*", "packaging/models/quire-demo*", "docs/glossary.md",
          "server/console/web/vendor/*", "tests/house/banned_words.txt", "tests/house/check_words_test.py", "build/*", ".git/*", ".cache/*",
          "*/node_modules/*", "*/package-lock.json"]
# Functions that begin with one of these verbs are listed in verbs.txt, each with its one meaning.
VERB = re.compile(r"\b((?:Take|Keep|Held|Begin|Note)(?:[A-Z]\w*)?)\s*\(")
CPP = (".cc", ".h", ".inl")
QUOTED_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//.*')


def matches_any(name, globs):
    return any(fnmatch.fnmatch(name, glob) for glob in globs)


def read_rules(path):
    """Rules of banned_words.txt: (compiled regex, hint, globs of exempt files)."""
    rules = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        fields = line.split("\t")
        if len(fields) != 3:
            raise ValueError(f"{path.name}:{number}: {len(fields)} fields, expected 3")
        rules.append((re.compile(fields[0], re.MULTILINE), fields[1], [glob for glob in fields[2].split(",") if glob]))
    return rules


def read_verbs(path):
    """Function names of verbs.txt; every line gives a name, a tab and what it does."""
    lines = path.read_text().splitlines()
    return {line.split("\t")[0] for line in lines if line and not line.startswith("#")}


def check_text(name, text, rules, verbs, hits):
    """Appends what is found in one file. Searches the whole text at once: most files have no hit."""
    def report(start, what):
        hits.append(f"{name}:{text.count(chr(10), 0, start) + 1}: {what}")

    for pattern, hint, exempt in rules:
        if not matches_any(name, exempt):
            for found in pattern.finditer(text):
                report(found.start(), f"\"{found.group(0)}\": write instead: {hint}")
    if name.endswith(CPP):
        code = QUOTED_OR_COMMENT.sub(lambda match: " " * len(match.group(0)), text)
        for found in VERB.finditer(code):
            if found.group(1) not in verbs:
                report(found.start(), f"\"{found.group(1)}\" is not in verbs.txt: one verb, one meaning")


def check(root, house=pathlib.Path(__file__).parent):
    rules, verbs = read_rules(house / "banned_words.txt"), read_verbs(house / "verbs.txt")
    hits = []
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if matches_any(name, EXEMPT) or not path.is_file():
            continue
        if path.suffix in SUFFIXES or path.name in NAMES:
            check_text(name, path.read_text(errors="replace"), rules, verbs, hits)
    return hits


if __name__ == "__main__":
    found = check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    for hit in found:
        print(hit)
    sys.exit(1 if found else 0)
