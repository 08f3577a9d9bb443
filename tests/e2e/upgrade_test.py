"""A package that is upgraded replaces the runner's file while the old daemon still serves."""
import os
import pathlib
import shutil
import tempfile
import unittest

from harness import BIN, MODEL, Daemon, greedy


class ReplacedRunner(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="quire-upgrade-")
        self.addCleanup(folder.cleanup)
        self.runner = pathlib.Path(folder.name) / "quire-runner"
        shutil.copy(BIN / "quire-runner", self.runner)

    def replace(self, script):
        """As dpkg does: another file is renamed over it."""
        other = self.runner.with_suffix(".dpkg-new")
        other.write_text("#!/bin/sh\n" + script + "\n")
        other.chmod(0o755)
        os.rename(other, self.runner)

    def chat(self, daemon):
        reply = daemon.post("/api/chat", greedy("Hello") | {"stream": False})
        self.assertEqual(reply.status, 200, reply.text)
        return reply.json["message"]["content"]

    def test_the_daemon_starts_the_runner_that_it_found(self):
        with Daemon({"QUIRE_RUNNER": str(self.runner)}) as daemon:
            answer = self.chat(daemon)
            self.replace("exit 7")
            for _ in range(2):
                (before,) = daemon.runner_pids()
                self.assertEqual(daemon.post("/api/generate", {"model": MODEL, "keep_alive": 0}).status, 200)
                self.assertEqual(self.chat(daemon), answer)
                (after,) = daemon.runner_pids()
                self.assertNotEqual(before, after)
            self.assertEqual(daemon.post("/api/show", {"model": MODEL, "verbose": True}).status, 200)
            self.assertNotIn("runner died", daemon.log())

    def test_a_script_may_be_a_runner(self):
        self.replace(f'exec {BIN}/quire-runner "$@"')
        with Daemon({"QUIRE_RUNNER": str(self.runner)}) as daemon:
            self.assertTrue(self.chat(daemon))


if __name__ == "__main__":
    unittest.main()
