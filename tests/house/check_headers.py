"""Compiles headers of the tree alone, each as a unit that includes nothing else.

The flags are those of the unit of the build that is nearest to the header, without its optimization; the
compiler's launcher (ccache) is kept, so that a header costs milliseconds while nothing that it includes has
changed. A header takes some seconds of instantiations, whatever is precompiled: with --newest N only the N headers that
changed last, by git's history, are looked at; exit code 77 (ctest's "skipped") where there is no history.

usage: check_headers.py ROOT BUILD [--newest N] [FOLDER...]
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys

import check_tidy

DROPPED = ("-O", "-g", "-M", "-fsanitize")
DROPPED_WITH_VALUE = ("-o", "-c", "-include", "-MF", "-MT", "-MQ")
# A header's functions have no caller here.
ADDED = ["-O0", "-Wno-unused-function"]


def flags(command):
    """The compiler, its launcher and what it needs to find and read a header."""
    kept = []
    words = iter(shlex.split(command))
    for word in words:
        if word in DROPPED_WITH_VALUE:
            next(words, None)
        elif not word.startswith(DROPPED):
            kept.append(word)
    return kept + ADDED


def folder_of(unit, root, build):
    """The folder that a unit belongs to; a generated unit's is that of its target."""
    if unit.is_relative_to(build):
        return unit.relative_to(build).as_posix().partition("/CMakeFiles/")[0]
    return unit.relative_to(root).parent.as_posix()


def flags_by_folder(root, build):
    found = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        unit = pathlib.Path(entry["directory"], entry["file"])
        if unit.suffix in (".cc", ".cxx") and unit.is_relative_to(root):
            # A test's flags find what its support needs.
            key = folder_of(unit, root, build)
            if key not in found or unit.name.endswith("_test.cc"):
                found[key] = flags(entry["command"])
    return found


def compile_alone(header, root, build, found):
    name = header.relative_to(root)
    nearest = next((found[folder.as_posix()] for folder in name.parents if folder.as_posix() in found), None)
    if nearest is None:  # a folder without units of its own
        nearest = next(iter(found.values()))
    unit = build / "headers" / f"{name}.cc"
    unit.parent.mkdir(parents=True, exist_ok=True)
    text = f'#include "{name}"\n'
    if not unit.exists() or unit.read_text() != text:
        unit.write_text(text)
    done = subprocess.run([*nearest, f"-I{root}", "-c", str(unit), "-o", str(unit.with_suffix(".o"))], cwd=build,
                          capture_output=True, text=True)
    return name, done.returncode, done.stderr


def check(root, build, headers):
    """The headers that do not compile alone, each with what the compiler says."""
    found = flags_by_folder(root, build)
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return [(name, text) for name, code, text in
                pool.map(lambda header: compile_alone(header, root, build, found), headers) if code != 0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("folders", nargs="*", default=("api", "bench", "cache", "runner", "scheduler", "server", "tests"))
    parser.add_argument("--newest", type=int, metavar="N")
    arguments = parser.parse_args()
    root, build = arguments.root.resolve(), arguments.build.resolve()
    headers = sorted(header for folder in arguments.folders for header in (root / folder).rglob("*.h"))
    if arguments.newest is not None:
        headers = check_tidy.newest(root, headers, arguments.newest)
    failed = check(root, build, headers)
    for name, text in failed:
        print(f"{name} does not compile alone:\n{text}")
    print(f"{len(headers)} headers, {len(failed)} do not compile alone")
    sys.exit(1 if failed or not headers else 0)


if __name__ == "__main__":
    main()
