#!/usr/bin/env python3
"""Runs the public conformance suite (real npm clients) against the real daemon.

Every case must pass, but for those in pending.txt, which belong to endpoints this version does not have; a pending case
that passes is a failure too, so that the list says what is true. Exit code 77 (skipped) without Node.js >= 20.11 or
without the npm registry, unless CI is set: there it is a failure.

usage: run.py WORK_FOLDER
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
from harness import MODEL, Daemon  # noqa: E402

SKIPPED = 77


def unavailable(why):
    print(f"conformance suite not run: {why}")
    sys.exit(1 if os.environ.get("CI") else SKIPPED)


def install(work):
    """A copy of the suite with its clients."""
    node = shutil.which("node")
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout if node else ""
    if tuple(map(int, version.strip().lstrip("v").split(".")[:2] or [0])) < (20, 11) if version else True:
        unavailable(f"needs Node.js >= 20.11, found {version.strip() or 'none'}")
    shutil.copytree(HERE / "suite", work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
    if not (work / "node_modules").exists():
        installed = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error"], cwd=work)
        if installed.returncode != 0:
            unavailable("npm could not install the clients")


def run_suite(work):
    report = work / "report.json"
    report.unlink(missing_ok=True)
    with Daemon() as daemon:
        environment = os.environ | {"BASE_URL": f"http://127.0.0.1:{daemon.port}", "MODEL": MODEL, "REPORT": str(report)}
        subprocess.run(["npm", "test", "--silent"], cwd=work, env=environment, timeout=1500)
    return json.loads(report.read_text())


def judge(rows, pending):
    faults = []
    for row in rows:
        if row["res"] == "fail" and row["name"] not in pending:
            faults.append(f"failed: {row['name']}: {row['why']}")
        if row["res"] == "pass" and row["name"] in pending:
            faults.append(f"passes, take it off pending.txt: {row['name']}")
    for name in pending - {row["name"] for row in rows}:
        faults.append(f"pending.txt names no case: {name}")
    return faults


def main():
    work = pathlib.Path(sys.argv[1]).resolve()
    install(work)
    pending = {line for line in (HERE / "pending.txt").read_text().splitlines() if line and not line.startswith("#")}
    rows = run_suite(work)
    faults = judge(rows, pending)
    counts = {kind: sum(row["res"] == kind for row in rows) for kind in ("pass", "fail", "skip")}
    print(f"conformance: {counts['pass']} passed, {counts['fail']} failed ({len(pending)} pending), "
          f"{counts['skip']} skipped")
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
