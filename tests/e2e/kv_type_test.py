#!/usr/bin/env python3
"""What keys and values are stored as, through the front door."""
import json
import unittest

from harness import MODEL, ROOT, Daemon

GOLDEN = json.loads((ROOT / "tests/data/quire-demo.golden.json").read_text())


class KvType(unittest.TestCase):
    def answers(self, environment):
        with Daemon(environment) as daemon:
            texts = []
            for case in GOLDEN["chat"][:12]:
                reply = daemon.post("/api/chat", {"model": MODEL, "stream": False, "messages": case["messages"],
                                                  "options": {"temperature": 0, "num_predict": 60}})
                self.assertEqual(200, reply.status, reply.text)
                texts.append(reply.json["message"]["content"])
            return texts

    def test_every_type_answers_as_float32_does(self):
        floats = self.answers({"OLLAMA_KV_CACHE_TYPE": "f32"})
        for kept, least in ((None, 12), ("i16", 12), ("f16", 12), ("BF16", 11), ("q8_0", 10)):
            answers = self.answers({} if kept is None else {"OLLAMA_KV_CACHE_TYPE": kept})
            same = sum(a == b for a, b in zip(floats, answers))
            self.assertGreaterEqual(same, least, kept)


if __name__ == "__main__":
    unittest.main()
