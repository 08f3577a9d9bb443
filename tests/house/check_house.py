#!/usr/bin/env python3
"""Checks that the tree keeps the rules of the house (CONTRIBUTING.md). Prints every breach, exits 1 if any.

usage: check_house.py [ROOT]
"""
import pathlib
import re
import sys

LINES_MAX = 500
TEST_BYTES_MAX = 20_000_000  # of tests/, which every clone gets
SOURCE_SUFFIXES = {".cc", ".h", ".py", ".sh", ".mjs", ".txt"}

RUNNER_PARTS = {"api", "cache"} | {f"runner/{part}" for part in (
    "work", "jinja", "gotemplate", "weights", "kernels", "tokenizer", "sampler", "output", "constraint", "prompt", "images",
    "models", "draft")}  # below its engine

# Which folder may include which. A folder may always include itself; naming a folder names the rooms below it
# that are listed here too. Subfolders of api/, runner/ and server/ are layers of their own,
# as are those of runner/engine/.
MAY_INCLUDE = {
    "api": {"api"},  # tests and fuzzers over several rooms
    "api/base": set(),
    "api/json": {"api/base"},
    "api/ipc": {"api/base", "api/json"},
    "api/anthropic": {"api/base", "api/json"},
    "api/ollama": {"api/base", "api/json"},
    "api/openai": {"api/base", "api/json"},
    "api/llama_server": {"api/base", "api/json", "api/openai"},
    "cache": {"api/base"},
    "scheduler": {"api"},
    "server": {"scheduler", "api", "server/http", "server/store", "server/registry", "server/routes", "server/console",
               "server/tier"},
    "server/http": {"api"},
    "server/store": {"api"},
    "server/registry": {"api", "server/store"},
    "server/routes": {"api", "scheduler", "server/http", "server/store", "server/registry"},
    "server/console": {"api", "scheduler", "server/http", "server/routes"},
    "server/cli": {"api", "server"},
    "server/tier": {"api", "scheduler", "server/http", "server/routes"},
    "server/fleet": {"api"},
    "server/testing": {"api", "scheduler", "server"},
    "bench": {"api", "cache", "runner", "scheduler", "server"},
    "tests": {"api", "cache", "runner", "scheduler", "server"},
    "runner": {"api", "cache", "runner"},
    "runner/golden": {"api", "cache", "runner", "tests/golden"},
    "runner/work": set(),
    "runner/jinja": {"api", "runner/work"},
    "runner/gotemplate": {"api", "runner/jinja", "runner/work"},
    "runner/weights": {"api"},
    "runner/kernels": {"api", "cache", "runner/weights"},
    "runner/tokenizer": {"api", "runner/weights", "runner/work"},
    "runner/sampler": {"api"},
    "runner/output": {"api"},
    "runner/constraint": {"api", "runner/work"},
    "runner/prompt": {"api", "runner/gotemplate", "runner/jinja", "runner/weights", "runner/work"},
    "runner/images": {"api", "runner/weights", "runner/work"},
    "runner/models": {"api", "cache", "runner/images", "runner/kernels", "runner/weights"},
    "runner/draft": {"api", "cache", "runner/kernels", "runner/models"},
    "runner/engine/shares": {"api"},
    "runner/engine/prompt": RUNNER_PARTS,
    "runner/engine/steps": RUNNER_PARTS | {"runner/engine/shares", "runner/engine/prompt"},
    "runner/engine/encoders": RUNNER_PARTS | {"runner/engine/shares", "runner/engine/prompt", "runner/engine/steps"},
    "runner/engine/process": {"api", "cache", "runner"},
    "runner/engine/testing": {"api", "cache", "runner"},
    "tests/data": set(),
    "tests/golden": {"api", "cache", "runner"},
}

TOP_LEVEL = {
    "CMakeLists.txt", "CMakePresets.json", "README.md", "LICENSE", "quickstart.sh", "server", "runner", "cache",
    "scheduler", "api", "packaging", "tests", "bench", "systemd", "docs", "build", "CONTRIBUTING.md",
}

UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
HEAVY_IN_HEADER = re.compile(r"^\s*#\s*include\s*<(nlohmann/json\.hpp|boost/beast[^>]*)>")
# gcc 12 (bug 106188) may lay out a coroutine's frame wrongly when an await stands in a condition; name its
# value first.
AWAIT_IN_CONDITION = re.compile(r"\b(if|while)\s*\((?:[^()=;]|\([^()]*\))*\bco_await\b")
# It also frees what a braced list in an awaited call's arguments was turned into twice; name the value first.
AWAIT_OF_BRACES = re.compile(r"\bco_await\b[^;]*[(,]\s*\{[^}]")
# Clang knows which mutex guards what only of the annotated ones. spdlog's library has its sinks for
# std::mutex.
MUTEX = "api/base/mutex.h"
PLAIN_MUTEX = re.compile(r"(?<!base_sink<)\bstd::(\w*mutex|lock_guard|unique_lock|scoped_lock|shared_lock)\b")
VENDORED = ("tests/conformance/suite/", "server/console/web/vendor/")


def layer_of(path):
    """The folder of MAY_INCLUDE that a file or an include path belongs to, the deepest that is named there."""
    parts = path.split("/")
    for depth in (3, 2, 1):
        name = "/".join(parts[:depth])
        if len(parts) > depth and name in MAY_INCLUDE:
            return name
    return None


def is_test_code(name):
    stem = name.rsplit(".", 1)[0]
    return "/testing/" in name or name.startswith(("tests/", "bench/")) or stem.endswith(("_test", "_fuzz", "_bench"))


def may_include(name, include):
    """Whether the file `name` may include `include`, both paths from the root."""
    source, target = layer_of(name), layer_of(include)
    if "/testing/" in include and not is_test_code(name):
        return False
    if target == source:
        return True
    if target == "tests/data":
        return is_test_code(name)
    # Tests of a layer may use the test support of any layer.
    if "/testing/" in include and is_test_code(name) and target in ("server/testing", "runner/engine/testing"):
        return source == "tests" or source.startswith(target.removesuffix("/testing"))
    return any(target == allowed or target.startswith(allowed + "/") for allowed in MAY_INCLUDE[source])


def check_source(name, text, breaches):
    lines = text.splitlines()
    if len(lines) > LINES_MAX:
        breaches.append(f"{name}: {len(lines)} lines, more than {LINES_MAX}")
    source = layer_of(name)
    header = name.endswith(".h")
    if header and "#pragma once" not in text:
        breaches.append(f"{name}: header without #pragma once")
    for number, line in enumerate(lines, 1):
        where = f"{name}:{number}"
        if UNFINISHED.search(line) and not name.startswith("tests/house/"):
            breaches.append(f"{where}: unfinished work marked in the tree")
        if name.endswith((".cc", ".h")) and AWAIT_IN_CONDITION.search(line):
            breaches.append(f"{where}: co_await in a condition")
        if name.endswith((".cc", ".h")) and AWAIT_OF_BRACES.search(line):
            breaches.append(f"{where}: a braced list among the arguments of co_await")
        if header and HEAVY_IN_HEADER.match(line):
            breaches.append(f"{where}: JSON or Beast in a header: {line.strip()}")
        if name.endswith((".cc", ".h")) and name != MUTEX and not is_test_code(name) and PLAIN_MUTEX.search(line):
            breaches.append(f"{where}: a mutex that is not of {MUTEX}")
        match = INCLUDE.match(line)
        if not match or not name.endswith((".cc", ".h")):
            continue
        target = layer_of(match.group(1))
        if source and target and not may_include(name, match.group(1)):
            breaches.append(f"{where}: {source}/ may not include {match.group(1)}")
        if source and not target:
            breaches.append(f"{where}: include from the root, not \"{match.group(1)}\"")


def check_built(root, sources, breaches):
    """Every .cc stands in a CMake file beside or above it."""
    listed = ""
    for pattern in ("CMakeLists.txt", "*.cmake"):
        for path in root.rglob(pattern):
            if "build" not in path.relative_to(root).parts:
                listed += path.read_text(errors="replace")
    for name in sources:
        if name.endswith(".cc") and not re.search(r"(^|[\s/(])" + re.escape(name.split("/")[-1]) + r"\b", listed):
            breaches.append(f"{name}: no CMake target builds it")


def check(root):
    breaches = []
    for entry in root.iterdir():
        if not entry.name.startswith(".") and entry.name not in TOP_LEVEL:
            breaches.append(f"{entry.name}: not one of the top level's names")
    sources = []
    test_bytes = 0
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if name.startswith(("build/", ".git/", ".cache/", *VENDORED)) or "/node_modules/" in name or not path.is_file():
            continue
        if name.startswith("tests/") and "__pycache__" not in name:
            test_bytes += path.stat().st_size
        if path.suffix in SOURCE_SUFFIXES:
            check_source(name, path.read_text(errors="replace"), breaches)
            sources.append(name)
    if test_bytes > TEST_BYTES_MAX:
        breaches.append(f"tests: {test_bytes} bytes, more than {TEST_BYTES_MAX}")
    check_built(root, sources, breaches)
    return breaches


if __name__ == "__main__":
    found = check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    for breach in found:
        print(breach)
    sys.exit(1 if found else 0)
