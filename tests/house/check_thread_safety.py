#!/usr/bin/env python3
"""Reads every source of a clang build that reaches api/base/mutex.h with -Wthread-safety as an error.

House.Tree lets the product lock nothing but that header's mutexes, so that no other source can touch a guarded member.
In a build with QUIRE_UNITY the sources of a batch are read at once, in a third of the CPU time.

usage: check_thread_safety.py ROOT BUILD
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys

import check_headers
import check_tidy

MUTEX = "api/base/mutex.h"
# Other warnings are gcc's business.
CHECK = ["-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-Werror", "-x", "c++", "-"]


def batches(root, build):
    """Each command of the build that compiles sources which can see a mutex, and these sources."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        unit = pathlib.Path(entry["file"])
        sources = check_tidy.BATCHED.findall(unit.read_text()) if unit.is_relative_to(build) else [str(unit)]
        reaching = [source for source in sources
                    if root / MUTEX in check_tidy.closure(root, pathlib.Path(source), set())]
        if reaching:
            yield [word for word in check_headers.flags(entry["command"]) if word != str(unit)], reaching


def violation(command, sources):
    """What the compiler says of the sources; empty: it accepts them."""
    text = "".join(f'#include "{source}"\n' for source in sources)
    done = subprocess.run([*command, *CHECK], input=text, capture_output=True, text=True)
    return done.stderr or "no reason" if done.returncode else ""


def main():
    root, build = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    found = list(batches(root, build))
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        failed = [text for text in pool.map(lambda batch: violation(*batch), found) if text]
    for text in failed:
        print(text)
    print(f"thread safety: {sum(len(sources) for _, sources in found)} sources with mutexes, "
          f"{len(failed)} of {len(found)} batches rejected")
    sys.exit(1 if failed or not found else 0)


if __name__ == "__main__":
    main()
