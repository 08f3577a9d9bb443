#!/usr/bin/env python3
"""Runs clang-tidy (.clang-tidy) over every unit of the build that is not a test.

A unit whose text, headers of ours and configuration have not changed since it last passed is not run again; what
passed is remembered in BUILD/tidy. usage: check_tidy.py ROOT BUILD
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

# Warnings are gcc's business in the build; here only the checks of .clang-tidy count.
EXTRA = ["--extra-arg=-std=c++2b", "--extra-arg=-w",
         f"--extra-arg=-include{pathlib.Path(__file__).resolve().parent / 'clang_concepts.h'}"]
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def closure(root, path, seen):
    """The file and all headers of ours that it reaches."""
    if path in seen or not path.exists():
        return seen
    seen.add(path)
    for name in INCLUDE.findall(path.read_text(errors="replace")):
        closure(root, root / name, seen)
    return seen


def fingerprint(root, source):
    digest = hashlib.sha256((root / ".clang-tidy").read_bytes() + pathlib.Path(__file__).read_bytes())
    for path in sorted(closure(root, source, set())):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def tidy(source, build):
    done = subprocess.run(["clang-tidy-16", "--quiet", f"-p={build}", *EXTRA, str(source)], capture_output=True, text=True)
    return source, done.returncode, done.stdout + (done.stderr if done.returncode else "")


def main():
    root, build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
    units = sorted({pathlib.Path(unit["file"]) for unit in json.loads((build / "compile_commands.json").read_text())})
    passed_folder = build / "tidy"
    passed_folder.mkdir(exist_ok=True)
    wanted = {}
    for unit in units:
        if unit.name.endswith("_test.cc") or not unit.is_relative_to(root) or unit.is_relative_to(build):
            continue
        mark = passed_folder / fingerprint(root, unit)
        if not mark.exists():
            wanted[unit] = mark
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for unit, code, text in pool.map(lambda unit: tidy(unit, build), wanted):
            if code == 0:
                wanted[unit].touch()
            else:
                failed += 1
                print(text)
    print(f"clang-tidy: {len(units)} units in the build, {len(wanted)} looked at, {failed} with findings")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
