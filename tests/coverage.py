#!/usr/bin/env python3
"""Line coverage by folder, from a build of the coverage preset whose tests have run.

    cmake --preset coverage -DQUIRE_BUILD_TESTS=ON && cmake --build build/coverage
    ctest --test-dir build/coverage -LE house -j2
    tests/coverage.py build/coverage

Prints the table of bench/results/coverage.md. A line counts as covered if any test of any program ran it. Tests, fuzzers and
benchmarks are not counted. A confined runner cannot write its counts: end-to-end tests add nothing to runner/.
"""
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("api", "cache", "runner", "scheduler", "server")
OTHERS = re.compile(r"(_test|_fuzz)\.cc$|/testing/|/golden/")


def counts_of(data):
    """Source, line, count of one object file."""
    done = subprocess.run(["gcov", "--json-format", "--stdout", data.name], cwd=data.parent, capture_output=True, text=True)
    for document in filter(None, done.stdout.splitlines()):
        report = json.loads(document)
        for file in report["files"]:
            path = pathlib.Path(report["current_working_directory"], file["file"])
            source = os.path.relpath(os.path.normpath(path), ROOT)
            if source.split("/")[0] in FOLDERS and not OTHERS.search("/" + source):
                for line in file["lines"]:
                    yield source, line["line_number"], line["count"]


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    # Objects that never ran have notes only, and count too.
    notes = sorted(build.rglob("*.gcno"))
    hits = collections.defaultdict(lambda: collections.defaultdict(int))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for counted in pool.map(lambda path: list(counts_of(path)), notes):
            for source, line, count in counted:
                hits[source][line] += count
    table = collections.defaultdict(lambda: [0, 0])
    for source, lines in hits.items():
        parts = pathlib.Path(source).parent.parts
        for folder in {parts[0], "/".join(parts[:2])}:
            table[folder][0] += sum(count > 0 for count in lines.values())
            table[folder][1] += len(lines)
    print("| folder | lines | covered |\n| --- | ---: | ---: |")
    for folder, (covered, lines) in sorted(table.items()):
        print(f"| `{folder}/` | {lines} | {100 * covered / lines:.1f} % |")


if __name__ == "__main__":
    main()
