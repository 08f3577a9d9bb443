#!/usr/bin/env python3
"""Checks that the sources of a library or a test program, which are compiled in batches (QUIRE_UNITY), name what is local to
them apart.

A batch puts several sources into one unit, so their unnamed namespaces are one. Two constants, types, or functions with
the same arguments do not compile; functions with other arguments are overloads, and a call may choose the other file's.
Which sources share a batch changes with every new source. Prints every name that two sources of a library define in
unnamed namespaces of one namespace, exits 1 if any.

usage: check_batches.py [ROOT]
"""
import collections
import pathlib
import re
import sys

SKIPPED = re.compile(r"set_source_files_properties\(([^)]*?)PROPERTIES\s+SKIP_UNITY_BUILD_INCLUSION ON\)")
TARGET = re.compile(r"^ *quire_(?:library|test)\((\w+)(.*?)\)", re.S | re.M)
UNNAMED = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.S | re.M)
NAMED = re.compile(r"^namespace ([\w:]+) \{$", re.M)
FUNCTION = re.compile(r"^(?!return|using|namespace|struct|class|enum|template|static_assert|TEST|INSTANTIATE|//|#|\}|\s)"
                      r"[\w:<>,&*\s\[\]]*?(?<!::)\b(\w+)\(", re.M)
CONSTANT = re.compile(r"^(?:alignas\(\d+\) )?const(?:expr)? [^=;{(]*?\b(k[A-Z]\w*)\b", re.M)
ALIAS = re.compile(r"^using (\w+) = ([^;]*);", re.M)  # the same one twice is none too many
TYPE = re.compile(r"^(?:struct|class|enum class|enum) (\w+)\b(?![^;{=]*;)", re.M)


def targets(root):
    """The sources of each library and test program that may be compiled in batches."""
    for path in sorted(root.rglob("CMakeLists.txt")):
        if "build" in path.relative_to(root).parts:
            continue
        text = path.read_text()
        alone = {word for words in SKIPPED.findall(text) for word in words.split()}
        for name, body in TARGET.findall(text):
            if "NO_UNITY" not in body:
                words = [word.replace("${CMAKE_SOURCE_DIR}", str(root.resolve())) for word in body.split()]
                sources = [path.parent.resolve() / word for word in words if word.endswith(".cc") and word not in alone]
                yield name, [source for source in sources if source.exists()]


def local_names(text):
    """(enclosing namespace, name, definition of an alias) of all that an unnamed namespace names."""
    for block in UNNAMED.finditer(text):
        enclosing = NAMED.findall(text[:block.start()])
        for pattern in (FUNCTION, CONSTANT, TYPE, ALIAS):
            for name in pattern.finditer(block.group(1)):
                yield enclosing[-1] if enclosing else "", name.group(1), name.group(2) if pattern is ALIAS else None


def check(root):
    violations = []
    for target, sources in targets(root):
        found, aliases = collections.defaultdict(set), collections.defaultdict(set)
        for source in sources:
            for namespace, name, definition in local_names(source.read_text()):
                found[namespace, name].add(source.relative_to(root.resolve()).as_posix())
                if definition:
                    aliases[namespace, name].add(definition)
        for (namespace, name), files in sorted(found.items()):
            if len(files) > 1 and len(aliases[namespace, name]) != 1:
                violations.append(f"{target}: {namespace}::{name} is local to {' and to '.join(sorted(files))}")
    return violations


if __name__ == "__main__":
    lines = check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    print("\n".join(lines), end="\n" if lines else "")
    sys.exit(1 if lines else 0)
