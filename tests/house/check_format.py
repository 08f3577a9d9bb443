#!/usr/bin/env python3
"""Every C++ file is as clang-format 14 (Debian 12's, .clang-format) would write it. usage: check_format.py ROOT"""
import pathlib
import subprocess
import sys

FOLDERS = ("api", "cache", "runner", "scheduler", "server", "tests", "bench")


def main():
    root = pathlib.Path(sys.argv[1])
    files = [str(path) for folder in FOLDERS for path in sorted((root / folder).rglob("*"))
             if path.suffix in (".cc", ".h") and "node_modules" not in path.parts]
    sys.exit(subprocess.run(["clang-format", "--dry-run", "--Werror", *files]).returncode)


if __name__ == "__main__":
    main()
