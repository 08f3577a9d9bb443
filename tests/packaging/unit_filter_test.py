"""The unit's filter of system calls leaves runners what they need to confine themselves, and a filter that does not is
refused. The filter that systemd would make is applied to a program that then starts the daemon.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import harness  # noqa: E402

UNIT = ROOT / "systemd/quire.service"
SETUP = {"seccomp", "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"}

# Applies a filter that allows the calls of a file only, as systemd does, and becomes another program.
LAUNCHER = """#!{python}
import ctypes, os, sys
library = ctypes.CDLL("libseccomp.so.2")
library.seccomp_init.restype = ctypes.c_void_p
filter = ctypes.c_void_p(library.seccomp_init(0x00050001))  # EPERM
for name in open("{calls}").read().split():
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number >= 0:
        library.seccomp_rule_add(filter, 0x7fff0000, number, 0)
if library.seccomp_load(filter) != 0:
    sys.exit("cannot load the filter")
os.execv("{program}", ["{program}"] + sys.argv[1:])
"""


def groups():
    """The groups of this machine's systemd, by name."""
    text = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager"], capture_output=True, text=True, check=True).stdout
    found = {}
    for line in text.splitlines():
        word = line.strip()
        if word.startswith("@") and not line[0].isspace():
            calls = found[word] = set()
        elif word and not word.startswith("#") and found:
            calls.add(word)
    return found


def expand(names, all_groups):
    calls = set()
    for name in names:
        calls |= expand(all_groups.get(name, ()), all_groups) if name.startswith("@") else {name}
    return calls


def allowed(unit, all_groups):
    """The calls that the lines SystemCallFilter= allow, read in their order."""
    calls = expand(["@default"], all_groups)
    for value in re.findall(r"^SystemCallFilter=(.*)$", unit, re.M):
        named = expand(value.removeprefix("~").split(), all_groups)
        calls = calls - named if value.startswith("~") else calls | named
    return calls


def filters_of(daemon):
    found = re.search(r"^quire_runner_system_call_filters\{.*\} (\d+)$", daemon.get("/metrics").text, re.M)
    return found and int(found[1])


class UnitFilter(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if shutil.which("systemd-analyze") is None:
            raise unittest.SkipTest("there is no systemd here")
        cls.calls = allowed(UNIT.read_text(), groups())

    def programs(self, calls):
        """A folder whose quired and quire-runner start with the filter."""
        kept = tempfile.TemporaryDirectory(prefix="quire-filter-")
        self.addCleanup(kept.cleanup)
        folder = pathlib.Path(kept.name)
        (folder / "calls").write_text("\n".join(sorted(calls)))
        for name in "quired", "quire-runner":
            script = LAUNCHER.format(python=sys.executable, calls=folder / "calls", program=harness.BIN / name)
            (folder / name).write_text(script)
            (folder / name).chmod(0o755)
        return folder

    def self_test(self, folder):
        return subprocess.run([folder / "quire-runner", "--selftest"], capture_output=True, text=True, check=False)

    def daemon(self, folder, **environment):
        before = harness.BIN
        self.addCleanup(setattr, harness, "BIN", before)
        harness.BIN = folder
        return harness.Daemon(environment)

    def test_the_sandbox_is_as_complete_as_without_the_filter(self):
        plain = self.self_test(harness.BIN)
        filtered = self.self_test(self.programs(self.calls))
        self.assertEqual((filtered.returncode, filtered.stdout), (plain.returncode, plain.stdout), filtered.stderr)

    def test_a_runner_confines_itself_and_lowers_a_priority(self):
        with self.daemon(self.programs(self.calls), QUIRE_REQUIRE_SANDBOX="1") as daemon:
            self.assertEqual(daemon.post("/api/chat", harness.greedy("Hello")).status, 200)
            self.assertNotIn("not filtered", daemon.log())
            self.assertNotIn("not permitted", daemon.log())
            self.assertEqual(filters_of(daemon), 3)
            (runner,) = daemon.runner_pids()
            threads = pathlib.Path(f"/proc/{runner}/task")
            nice = [int((thread / "stat").read_text().rpartition(")")[2].split()[16]) for thread in threads.iterdir()]
            self.assertEqual(max(nice) - min(nice), 5, nice)

    def test_without_a_sandbox_no_model_is_loaded(self):
        with self.daemon(self.programs(self.calls - SETUP), QUIRE_REQUIRE_SANDBOX="1") as daemon:
            for path, body in (("/api/chat", harness.greedy("Hello")), ("/api/show", {"model": harness.MODEL})):
                reply = daemon.post(path, body)
                self.assertEqual(reply.status, 503, reply.text)
                self.assertIn("the model runner is not confined: system calls are not filtered", reply.text)
                self.assertIn("Landlock is not available (Operation not permitted)", reply.text)

    def test_where_it_is_not_required_the_log_and_a_metric_tell(self):
        with self.daemon(self.programs(self.calls - SETUP), QUIRE_REQUIRE_SANDBOX="0") as daemon:
            self.assertEqual(daemon.post("/api/chat", harness.greedy("Hello")).status, 200)
            self.assertIn("confined without: system calls are not filtered", daemon.log())
            self.assertEqual(filters_of(daemon), 0)

    def test_the_unit_requires_it(self):
        self.assertIn("Environment=QUIRE_REQUIRE_SANDBOX=1\n", UNIT.read_text())


if __name__ == "__main__":
    unittest.main()
