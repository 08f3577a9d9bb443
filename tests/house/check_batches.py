#!/usr/bin/env python3
"""Checks that the sources of a library that is compiled in batches (QUIRE_UNITY) name their local functions apart.

A batch puts several sources into one unit, so their unnamed namespaces are one. Two functions of the same name and the
same arguments do not compile; with other arguments they are overloads, and a call may choose the other file's. Prints
every name that two sources of a library define in unnamed namespaces of one namespace, exits 1 if any.

usage: check_batches.py [ROOT]
"""
import collections
import pathlib
import re
import sys

SKIPPED = re.compile(r"set_source_files_properties\(([^)]*?)PROPERTIES\s+SKIP_UNITY_BUILD_INCLUSION ON\)")
LIBRARY = re.compile(r"quire_library\((\w+)(.*?)\)", re.S)
UNNAMED = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.S | re.M)
NAMED = re.compile(r"^namespace ([\w:]+) \{$", re.M)
FUNCTION = re.compile(r"^(?!return|using|namespace|struct|class|enum|template|static_assert|//|#|\}|\s)"
                      r"[\w:<>,&*\s\[\]]*?(?<!::)\b(\w+)\(", re.M)


def libraries(root):
    """The sources of each library that may be compiled in batches."""
    for path in sorted(root.rglob("CMakeLists.txt")):
        if "build" in path.relative_to(root).parts:
            continue
        text = path.read_text()
        alone = {word for words in SKIPPED.findall(text) for word in words.split()}
        for name, body in LIBRARY.findall(text):
            if "NO_UNITY" not in body:
                yield name, [path.parent / word for word in body.split() if word.endswith(".cc") and word not in alone]


def local_functions(text):
    """(enclosing namespace, name) of every function in an unnamed namespace."""
    for block in UNNAMED.finditer(text):
        enclosing = NAMED.findall(text[:block.start()])
        for function in FUNCTION.finditer(block.group(1)):
            yield enclosing[-1] if enclosing else "", function.group(1)


def check(root):
    violations = []
    for library, sources in libraries(root):
        found = collections.defaultdict(set)
        for source in sources:
            for key in local_functions(source.read_text()):
                found[key].add(source.relative_to(root).as_posix())
        for (namespace, name), files in sorted(found.items()):
            if len(files) > 1:
                violations.append(f"{library}: {namespace}::{name} is local to {' and to '.join(sorted(files))}")
    return violations


if __name__ == "__main__":
    lines = check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    print("\n".join(lines), end="\n" if lines else "")
    sys.exit(1 if lines else 0)
