#!/usr/bin/env python3
"""Runs clang-tidy (.clang-tidy) over every unit of the build that is not a test, or over those that changed last.

A unit whose text, headers of ours and configuration have not changed since it last passed is not run again; what
passed is remembered in BUILD/tidy. With --newest N only the N units that changed last, by git's history, are looked at:
a bounded check for every run; exit code 77 (ctest's "skipped") where there is no history.

usage: check_tidy.py ROOT BUILD [--newest N]
"""
import argparse
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
SKIPPED = 77
PRECOMPILED = re.compile(r" -Winvalid-pch +-include \S+cmake_pch\.hxx")
BATCHED = re.compile(r'^#include "([^"]+\.cc)"$', re.MULTILINE)
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


def git(root, *arguments):
    """The lines that git prints. Ends the check as skipped where it has nothing to say: no git, no repository."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.splitlines()
        reason = done.stderr.strip()
    except FileNotFoundError:
        reason = "there is no git"
    print(f"clang-tidy not run: {reason}")
    sys.exit(SKIPPED)


def newest(root, files, count):
    """The `count` units or headers that changed last, themselves or those of the same name."""
    changed = git(root, "status", "--porcelain", "--no-renames")
    logged = git(root, "log", "--no-renames", "--name-only", "--format=")
    age = {}
    for name in [line[3:] for line in changed] + logged:
        age.setdefault(name.rpartition(".")[0], len(age))
    return sorted(files, key=lambda path: age.get(path.relative_to(root).with_suffix("").as_posix(), len(age)))[:count]


def single_units(build):
    """The build's database, without gcc's precompiled headers; a batch of sources counts as each of them alone."""
    units = []
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        sources = BATCHED.findall(path.read_text()) if path.is_relative_to(build) and path.exists() else []
        for source in sources or [entry["file"]]:
            command = PRECOMPILED.sub("", entry["command"]).replace(entry["file"], source)
            units.append(entry | {"file": source, "command": command})
    return units


def tidy(source, folder):
    done = subprocess.run(["clang-tidy-16", "--quiet", f"-p={folder}", *EXTRA, str(source)], capture_output=True, text=True)
    return source, done.returncode, done.stdout + (done.stderr if done.returncode else "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--newest", type=int, metavar="N")
    arguments = parser.parse_args()
    root, build = arguments.root.resolve(), arguments.build.resolve()
    database = single_units(build)
    units = sorted(unit for unit in {pathlib.Path(entry["file"]) for entry in database}
                   if unit.is_relative_to(root) and not unit.is_relative_to(build) and not unit.name.endswith("_test.cc"))
    chosen = newest(root, units, arguments.newest) if arguments.newest else units
    passed_folder = build / "tidy"
    passed_folder.mkdir(exist_ok=True)
    (passed_folder / "compile_commands.json").write_text(json.dumps(database))
    wanted = {}
    for unit in chosen:
        mark = passed_folder / fingerprint(root, unit)
        if not mark.exists():
            wanted[unit] = mark
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for unit, code, text in pool.map(lambda unit: tidy(unit, passed_folder), wanted):
            if code == 0:
                wanted[unit].touch()
            else:
                failed += 1
                print(text)
    print(f"clang-tidy: {len(units)} units, {len(chosen)} asked for, {len(wanted)} changed since they passed, "
          f"{failed} with findings")
    sys.exit(1 if failed or not units else 0)


if __name__ == "__main__":
    main()
