#!/usr/bin/env python3
"""Checks the words of the tree against banned_words.txt and verbs.txt (docs/glossary.md), and the form of comments, headings
and commit subjects. Prints every hit, exits 1 if any.

usage: check_words.py [ROOT]
"""
import fnmatch
import pathlib
import re
import subprocess
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
COMMENT_COLUMNS = 110
COMMENT = re.compile(r"^[ \t]*(?://|#(?!include|if|endif|define|!)).*$", re.MULTILINE)
WITH_COMMENTS = CPP + (".py", ".mjs", ".js", ".sh", ".cmake", "CMakeLists.txt")
TRAILING_COMMENT = re.compile(r'^(?:[^"/\n]|"(?:[^"\\\n]|\\.)*"|/(?!/))*[ \t]//.*$', re.MULTILINE)
# "Of a request: its bytes" hides the subject. A sentence begins with it.
FRONTED = re.compile(r"^[ \t]*(?://+|#+|=+)[ \t]*Of[ \t].*$", re.MULTILINE)
SUBJECT_MAX, SUBJECTS = 72, 20
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


def check_form(name, text, hits):
    """Appends comment lines that are too wide, and comments and headings that begin with a fronted "Of"."""
    def report(start, what):
        hits.append(f"{name}:{text.count(chr(10), 0, start) + 1}: {what}")

    for found in FRONTED.finditer(text) if name.endswith((*WITH_COMMENTS, ".md")) else ():
        report(found.start(), "begins with \"Of\": begin with the subject")
    for kind in [COMMENT] * name.endswith(WITH_COMMENTS) + [TRAILING_COMMENT] * name.endswith(CPP):
        for found in kind.finditer(text):
            # A line that a trailing comment ends is reported once.
            if len(found.group(0)) > COMMENT_COLUMNS and (kind is COMMENT or not COMMENT.match(found.group(0))):
                report(found.start(), f"a comment of {len(found.group(0))} columns: at most {COMMENT_COLUMNS}")


def check_subjects(root, hits):
    """Appends the subjects of the last commits that are too long; nothing where there is no history."""
    log = subprocess.run(["git", "-C", str(root), "log", f"-{SUBJECTS}", "--format=%h %s"], capture_output=True, text=True)
    for commit, _, subject in (line.partition(" ") for line in log.stdout.splitlines()):
        if len(subject) > SUBJECT_MAX:
            hits.append(f"{commit}: a commit subject of {len(subject)} characters: at most {SUBJECT_MAX}")


def check(root, house=pathlib.Path(__file__).parent):
    rules, verbs = read_rules(house / "banned_words.txt"), read_verbs(house / "verbs.txt")
    hits = []
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if matches_any(name, EXEMPT) or not path.is_file():
            continue
        if path.suffix in SUFFIXES or path.name in NAMES:
            text = path.read_text(errors="replace")
            check_text(name, text, rules, verbs, hits)
            check_form(name, text, hits)
    check_subjects(root, hits)
    return hits


if __name__ == "__main__":
    found = check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    for hit in found:
        print(hit)
    sys.exit(1 if found else 0)
