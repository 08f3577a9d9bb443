#!/usr/bin/env python3
"""Runs the public conformance suite (real npm clients) and what is added to it in own/ against the daemon as it is
installed: into WORK_FOLDER/root, as a package would install it.

Every case must pass, but for those in pending.txt, which belong to endpoints this version does not have; a pending case
that passes is a failure too, so that the list says what is true. Without Node.js >= 20.11, or where no npm registry can
be reached, nothing is run: exit code 77 (ctest's "skipped"), the reason in WORK_FOLDER/skipped.txt.

usage: run.py WORK_FOLDER BUILD_FOLDER
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent / "e2e"))
import harness  # noqa: E402
import tiny_encoders  # noqa: E402
from harness import MODEL, Daemon  # noqa: E402

SKIPPED = 77
INSTALL_TIMEOUT_S = 300
SUITE_TIMEOUT_S = 900
# npm's codes for a registry that cannot be reached; any other failure of an installation is a failure here
# too.
UNREACHABLE = re.compile(r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH|ENETDOWN"
                         r"|ERR_SOCKET_TIMEOUT|EIDLETIMEOUT)\b")


def skip(work, why):
    print(f"conformance suite not run: {why}")
    (work / "skipped.txt").write_text(why + "\n")
    sys.exit(SKIPPED)


def run(command, work, environment, timeout, **options):
    """Like subprocess.run, but what the command started ends with it. None: it took too long."""
    process = subprocess.Popen(command, cwd=work, env=environment, start_new_session=True, **options)
    try:
        _, errors = process.communicate(timeout=timeout)
        return process.returncode, errors
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None


def with_node(work):
    """The environment in which Node.js and npm are found: quickstart.sh may have put newer ones into build/node."""
    own = ROOT / "build/node/node_modules/.bin"
    environment = os.environ | {"PATH": f"{own}{os.pathsep}{os.environ.get('PATH', '')}"}
    node = shutil.which("node", path=environment["PATH"])
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout.strip() if node else ""
    numbers = re.match(r"v(\d+)\.(\d+)", version)
    if not numbers or tuple(map(int, numbers.groups())) < (20, 11):
        skip(work, f"needs Node.js >= 20.11, found {version or 'none'}")
    if not shutil.which("npm", path=environment["PATH"]):
        skip(work, "needs npm")
    return environment


def install_daemon(work, build):
    root = work / "root"
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run(["cmake", "--install", build, "--prefix", "/usr"], env=os.environ | {"DESTDIR": str(root)}, check=True,
                   stdout=subprocess.DEVNULL)
    harness.BIN = root / "usr/bin"


def install_clients(work, environment):
    """A copy of the suite with its clients."""
    shutil.rmtree(work / "test", ignore_errors=True)
    shutil.copytree(HERE / "suite", work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
    shutil.copytree(HERE / "own", work / "test", dirs_exist_ok=True, ignore=shutil.ignore_patterns("package*.json"))
    for name in ("package.json", "package-lock.json"):  # the suite's clients and those of own/
        shutil.copy(HERE / "own" / name, work / name)
    installed = work / "installed-package-lock.json"  # what lies in node_modules, once it is complete
    lock = (work / "package-lock.json").read_bytes()
    if installed.exists() and installed.read_bytes() == lock:
        return
    done = run(["npm", "ci", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1", "--fetch-timeout=60000"],
               work, environment, INSTALL_TIMEOUT_S, stderr=subprocess.PIPE, text=True)
    if done is None:
        skip(work, f"npm could not fetch the clients in {INSTALL_TIMEOUT_S} s")
    code, errors = done
    if code != 0:
        print(errors)
        if UNREACHABLE.search(errors):
            skip(work, "npm reaches no registry to fetch the clients from")
        sys.exit("npm could not install the clients")
    installed.write_bytes(lock)


def run_suite(work, environment):
    report = work / "report.json"
    report.unlink(missing_ok=True)
    with Daemon() as daemon:
        folder = pathlib.Path(daemon.folder.name)
        encoder = tiny_encoders.write_bert(folder / "embed")
        ranker = tiny_encoders.write_bert(folder / "rank", ranks=True, seed=2)
        environment |= {"BASE_URL": f"http://127.0.0.1:{daemon.port}", "MODEL": MODEL, "EMBED_MODEL": MODEL,
                        "ENCODER_FOLDER": str(encoder), "RERANKER_FOLDER": str(ranker),
                        "QUIRE_BIN": str(harness.BIN), "REPORT": str(report)}
        fixtures = pathlib.Path(os.environ.get("QUIRE_FIXTURES", ROOT.parent / "shared/fixtures"))
        vision = fixtures.with_name(fixtures.name + "-2") / "vision"
        if vision.exists():
            environment["VISION_FOLDER"] = str(vision.resolve())
        # As package.json's "test", but with the files named: from Node.js 22 on a folder is not searched.
        files = sorted(path.relative_to(work).as_posix() for path in work.glob("test/*.test.mjs"))
        command = ["node", "--test", "--test-concurrency=1", "--test-reporter=./lib/report.mjs",
                   "--test-reporter-destination=stdout", *files]
        if run(command, work, environment, SUITE_TIMEOUT_S) is None:
            sys.exit(f"the suite took longer than {SUITE_TIMEOUT_S} s")
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
    work.mkdir(parents=True, exist_ok=True)
    (work / "skipped.txt").unlink(missing_ok=True)
    environment = with_node(work)
    install_clients(work, environment)
    install_daemon(work, sys.argv[2])
    pending = {line for line in (HERE / "pending.txt").read_text().splitlines() if line and not line.startswith("#")}
    rows = run_suite(work, environment)
    faults = judge(rows, pending)
    counts = {kind: sum(row["res"] == kind for row in rows) for kind in ("pass", "fail", "skip")}
    print(f"conformance: {counts['pass']} passed, {counts['fail']} failed ({len(pending)} pending), "
          f"{counts['skip']} skipped")
    for fault in faults:
        print(fault)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
