#!/usr/bin/env python3
"""Every test that docs/security.md names is there: GoogleTest cases, fuzzers, test files and their classes. Every
system call that the sandbox test makes is in docs/security.md. Every environment variable that a document names is read
somewhere.

usage: check_security_doc.py ROOT
"""
import pathlib
import re
import sys

FOLDERS = ("api", "cache", "runner", "scheduler", "server", "tests")
VARIABLE = r"\b(?:QUIRE|OLLAMA)_[A-Z0-9_]*[A-Z0-9]"
CALLS = "runner/engine/testing/sandbox_calls.cc"


def missing(root):
    files = [path for folder in FOLDERS for path in (root / folder).rglob("*")
             if path.suffix in (".cc", ".py") or path.name == "CMakeLists.txt"]
    names = {path.name for path in files}
    text = "\n".join(path.read_text(errors="replace") for path in files)
    for name in sorted(set(re.findall(r"`([^`\n]+)`", (root / "docs/security.md").read_text()))):
        if case := re.fullmatch(r"([A-Z]\w+)\.(\w+|\*)", name):
            test = case[2] if case[2] != "*" else ""
            if not re.search(rf"TEST(_F|_P)?\({case[1]},\s*{test}", text):
                yield name
        elif name.startswith("quire_") and f"quire_fuzzer({name} " not in text:
            yield name
        elif found := re.fullmatch(r"(\w+\.(?:cc|py))(?: (\w+))?", name):
            if found[1] not in names or (found[2] and not re.search(rf"^class {found[2]}\(", text, re.MULTILINE)):
                yield name


def undocumented(root):
    rows = re.findall(r'^      \{"([^"]+)",', (root / CALLS).read_text(), re.MULTILINE)
    assert rows, f"{CALLS} has no rows"
    text = (root / "docs/security.md").read_text()
    return [row for row in rows if f"`{row}`" not in text]


def unread_variables(root):
    folders = (*FOLDERS, "bench", "packaging", "systemd", ".ci")
    files = [path for folder in folders for path in (root / folder).rglob("*") if path.is_file() and path.suffix != ".md"
             and "data" not in path.parts]
    files += [root / "CMakeLists.txt", root / "quickstart.sh"]
    known = set()
    for path in files:
        known.update(re.findall(VARIABLE, path.read_text(errors="replace")))
    for path in sorted([*root.glob("*.md"), *root.glob("*/*.md")]):
        for name in sorted(set(re.findall(VARIABLE, path.read_text())) - known):
            yield path.relative_to(root), name


def main():
    root = pathlib.Path(sys.argv[1])
    lacking = list(missing(root))
    for name in lacking:
        print(f"docs/security.md names {name}, which is not there")
    variables = list(unread_variables(root))
    for path, name in variables:
        print(f"{path} names {name}, which nothing reads")
    calls = undocumented(root)
    for name in calls:
        print(f"docs/security.md does not list the system call {name} of {CALLS}")
    return 1 if lacking or calls or variables else 0


if __name__ == "__main__":
    sys.exit(main())
