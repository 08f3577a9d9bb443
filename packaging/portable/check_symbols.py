#!/usr/bin/env python3
"""check_symbols.py FOLDER: fails if a program below FOLDER needs a library other than those of the C library, or a symbol
version newer than glibc 2.28 (RHEL 8, Debian 10) has. Prints the newest version of each program."""

import os
import re
import subprocess
import sys

NEWEST = (2, 28)
# What the oldest of other distributions have, for the report.
DISTRIBUTIONS = {"RHEL 8": (2, 28), "Debian 11, Ubuntu 20.04": (2, 31), "Amazon Linux 2023, RHEL 9": (2, 34)}
LIBRARIES = re.compile(r"^(lib(c|m|dl|rt|pthread|resolv)\.so\.\d+|ld-linux-.*\.so\.\d+)$")


def programs(folder):
    for root, _, names in os.walk(folder):
        for name in sorted(names):
            path = os.path.join(root, name)
            if os.path.islink(path):
                continue
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def requirements(path):
    # readelf reads programs of every architecture.
    text = subprocess.run(["readelf", "-W", "-d", "-V", path], check=True, capture_output=True, text=True,
                          env=os.environ | {"LC_ALL": "C"}).stdout
    libraries = re.findall(r"\(NEEDED\)\s+Shared library: \[(.+)\]", text)
    needed = re.findall(r"\bName: (\S+)\s+Flags:", text)
    numbered = {name for name in needed if re.fullmatch(r"GLIBC_[0-9.]+", name)}
    versions = {tuple(map(int, name.removeprefix("GLIBC_").split("."))) for name in numbered}
    others = set(needed) - numbered
    return libraries, versions, others


def check(path):
    libraries, versions, others = requirements(path)
    problems = [f"needs {library}" for library in libraries if not LIBRARIES.match(library)]
    problems += [f"needs the symbol version {other}" for other in sorted(others)]
    newest = max(versions, default=(0,))
    if newest > NEWEST:
        problems.append(f"needs glibc {'.'.join(map(str, newest))}")
    runs_on = [name for name, has in DISTRIBUTIONS.items() if has >= newest]
    print(f"{os.path.basename(path)}: glibc {'.'.join(map(str, newest))} ({'; '.join(runs_on)})")
    return problems


def main():
    failed = False
    for path in programs(sys.argv[1]):
        for problem in check(path):
            print(f"{path}: {problem}", file=sys.stderr)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
