#!/usr/bin/env python3
"""bench/compare_engines.py with engines that are shell scripts: what it prints for those that answer, fail and hang."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench/compare_engines.py"


class CompareEngines(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def program(self, name, body):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    def compare(self, *arguments, quire="echo '{\"avg_ts\": 300}'"):
        command = [sys.executable, str(SCRIPT), "model.gguf", "--quire", self.program("quire-bench", quire),
                   "--rounds", "3", "-p", "8", "-b", "1,4", *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        by_engine = {(line["engine"], line["figure"], line["sequences"]): line for line in lines[1:]}
        return done, lines[:1], by_engine

    def test_engines_that_answer_get_a_ratio_each(self):
        llama = self.program("llama-bench", "echo loading; echo '[\n {\"avg_ts\": 100}\n]\nwarning: [done]'")
        batched = self.program("llama-batched-bench", "echo '{\"speed_tg\": 60}'; echo bye")
        done, machine, lines = self.compare("--peer", f"llama={llama} -rtr 1", "--batched", f"llama={batched}",
                                            "--peer", f"ik={llama}", "--target", "avx2")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual("avx2", machine[0]["target"])
        self.assertIn("date", machine[0])
        self.assertEqual({"quire": 3, "llama": 3, "ik": 2}, {name: sum(key[0] == name for key in lines)
                                                             for name in ("quire", "llama", "ik")})
        self.assertEqual(3, lines["llama", "prefill", 1]["ratio"])
        self.assertEqual([60] * 3, lines["llama", "decode", 4]["samples"])
        self.assertEqual(5, lines["llama", "decode", 4]["ratio"])
        self.assertNotIn("ratio", lines["quire", "decode", 1])

    def test_an_engine_that_fails_is_named_and_counted(self):
        for failure in ("exit 3", "echo '[]'", "echo 'no JSON'", "echo '{\"avg_ts\": 0}'", "echo '[{\"avg_ts\": '",
                        "kill -9 $$"):
            with self.subTest(failure):
                done, _, lines = self.compare("--peer", f"llama={self.program('llama-bench', failure)}")
                self.assertEqual(1, done.returncode)
                self.assertEqual(3, lines["llama", "prefill", 1]["failed"])
                self.assertEqual([], lines["llama", "prefill", 1]["samples"])
                self.assertNotIn("ratio", lines["llama", "prefill", 1])
                self.assertEqual(300, lines["quire", "prefill", 1]["median"])
                self.assertNotEqual("", done.stderr)

    def test_a_round_that_failed_enters_no_ratio(self):
        count = self.folder / "count"
        quire = f'echo >>{count}; n=$(wc -l <{count}); [ $n -gt 1 ] && echo "{{\\"avg_ts\\": $((n * 100))}}"'
        llama = self.program("llama-bench", "echo '[{\"avg_ts\": 100}]'")
        done, _, lines = self.compare("--peer", f"llama={llama}", "-b", "1", quire=quire)
        self.assertEqual(1, done.returncode)
        self.assertEqual(([200, 300], 1), (lines["quire", "prefill", 1]["samples"], lines["quire", "prefill", 1]["failed"]))
        self.assertEqual(([100] * 3, 2.5), (lines["llama", "prefill", 1]["samples"], lines["llama", "prefill", 1]["ratio"]))

    def test_an_engine_that_hangs_fails(self):
        done, _, lines = self.compare("--peer", f"llama={self.program('llama-bench', 'sleep 60; echo late')}", "--timeout", "0.2",
                                      "-b", "1")
        self.assertEqual(1, done.returncode)
        self.assertEqual(3, lines["llama", "decode", 1]["failed"])

    def test_a_peer_without_a_name_is_refused(self):
        for peer in ("llama-bench", "=llama-bench", "llama=", "quire=llama-bench"):
            with self.subTest(peer):
                self.assertEqual(2, self.compare("--peer", peer)[0].returncode)


if __name__ == "__main__":
    unittest.main()
