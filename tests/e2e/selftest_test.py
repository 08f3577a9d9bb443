"""quired --selftest: what passes here, and the exit status of each failure (docs/operations.md)."""
import os
import pathlib
import shutil
import stat
import subprocess
import tempfile
import unittest

from harness import BIN, ROOT

PASSED, NOT_RUN, KERNELS, SANDBOX, ANSWER = 0, 1, 10, 11, 12
MODELS = ROOT / "packaging/models"
WEIGHTS = "quire-demo-F16.gguf"
TIMEOUT_S = 300  # of a busy machine


def self_test(program, *arguments):
    return subprocess.run([program, "--selftest", *arguments], capture_output=True, text=True, timeout=TIMEOUT_S,
                          env=os.environ | {"OLLAMA_HOST": "127.0.0.1:0"}, check=False)


class SelfTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="quire-selftest-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def runner_that(self, script):
        path = self.folder / "runner"
        path.write_text("#!/bin/sh\n" + script + "\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return f"--runner={path}"

    def installed(self):
        """A program that lies in a folder of its own, with the bundled model."""
        for part in "bin", "lib/quire", "share/quire/models":
            (self.folder / part).mkdir(parents=True)
        shutil.copy(BIN / "quired", self.folder / "bin/quired")
        shutil.copy(BIN / "quire-runner", self.folder / "lib/quire/quire-runner")
        shutil.copy(MODELS / WEIGHTS, self.folder / "share/quire/models")
        return self.folder / "bin/quired"

    def test_passes_on_this_machine(self):
        result = self_test(BIN / "quired")
        # A container's kernel may lack parts of the sandbox.
        self.assertIn(result.returncode, (PASSED, SANDBOX), result.stdout + result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines], ["kernels"] * 4 + ["sandbox", "answer"])
        for line in lines[:4] + lines[5:]:
            self.assertEqual(line.split()[1], "ok", line)

    def test_works_from_any_folder(self):
        result = self_test(self.installed())
        self.assertIn(result.returncode, (PASSED, SANDBOX), result.stdout + result.stderr)

    def test_another_answer_has_its_status(self):
        program = self.installed()
        with open(self.folder / "share/quire/models" / WEIGHTS, "r+b") as weights:
            weights.seek(-(1 << 20), os.SEEK_END)  # of the last tensors
            weights.write(bytes(1 << 20))
        result = self_test(program)
        self.assertEqual(result.returncode, ANSWER, result.stdout)
        self.assertIn("answer   FAILED", result.stdout)

    def test_the_runner_s_findings_have_their_status(self):
        cases = {"exit 10": KERNELS, "kill -ILL $$": KERNELS, "exit 3": NOT_RUN, "exit 12": NOT_RUN}
        for script, status in cases.items():
            result = self_test(BIN / "quired", self.runner_that(script))
            self.assertEqual(result.returncode, status, script + result.stdout)

    def test_a_runner_that_is_not_there_is_named(self):
        result = self_test(BIN / "quired", "--runner=/nowhere/quire-runner")
        self.assertEqual(result.returncode, NOT_RUN)
        self.assertIn("/nowhere/quire-runner", result.stdout)

    def test_an_incomplete_sandbox_has_its_status_and_all_else_is_checked(self):
        runner = f'case $1 in --selftest) exit 11 ;; *) exec "{BIN}/quire-runner" "$@" ;; esac'
        result = self_test(BIN / "quired", self.runner_that(runner))
        self.assertEqual(result.returncode, SANDBOX, result.stdout)
        self.assertIn("answer   ok", result.stdout)


if __name__ == "__main__":
    unittest.main()
