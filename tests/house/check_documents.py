#!/usr/bin/env python3
"""Documents stay short, and their links lead somewhere. Prints every breach, exits 1 if any.

Words are counted as `wc -w` counts them, in every document but those of tests, results of benches, and the bundled model's card.

usage: check_documents.py [ROOT]
"""
import pathlib
import re
import sys

WORDS_MAX = 26_100
WORDS_OF_ONE_MAX = {"docs/operations.md": 2_500}
LINES_MAX = {"README.md": 120}
NOT_COUNTED = ("tests/", "bench/results/", "packaging/models/")
NOT_OURS = ("build/", ".", "tests/conformance/suite/", "server/console/web/vendor/")
CODE = re.compile(r"^```.*?^```|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def documents(root):
    """Paths from the root of all documents of the tree."""
    names = (path.relative_to(root).as_posix() for path in root.rglob("*.md"))
    return sorted(name for name in names if not name.startswith(NOT_OURS) and "/node_modules/" not in name)


def anchors(text):
    """The anchors of a document's headings, as GitHub makes them."""
    titles = (title.lower() for title in HEADING.findall(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)))
    return {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in titles}


def check_links(root, name, text, breaches):
    for link in LINK.findall(CODE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (root / name).parent / file if file else root / name
        if not target.exists():
            breaches.append(f"{name}: the link {link} leads nowhere")
        elif anchor and anchor not in anchors(target.read_text()):
            breaches.append(f"{name}: {link}: there is no such heading")


def words(root):
    """The words of each document that is counted."""
    return {name: len((root / name).read_text().split()) for name in documents(root) if not name.startswith(NOT_COUNTED)}


def check(root):
    breaches = []
    counts = words(root)
    for name in documents(root):
        text = (root / name).read_text()
        check_links(root, name, text, breaches)
        if len(text.splitlines()) > LINES_MAX.get(name, sys.maxsize):
            breaches.append(f"{name}: {len(text.splitlines())} lines, more than {LINES_MAX[name]}")
    for name, most in WORDS_OF_ONE_MAX.items():
        if counts.get(name, 0) > most:
            breaches.append(f"{name}: {counts[name]} words, more than {most}")
    if sum(counts.values()) > WORDS_MAX:
        breaches.append(f"documents: {sum(counts.values())} words, more than {WORDS_MAX}")
    return breaches


if __name__ == "__main__":
    found = check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    for breach in found:
        print(breach)
    sys.exit(1 if found else 0)
