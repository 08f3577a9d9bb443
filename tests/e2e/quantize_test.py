#!/usr/bin/env python3
"""A model of floats that is quantized while it loads, through the front door."""
import json
import unittest

from harness import MODEL, ROOT, Daemon

GOLDEN = json.loads((ROOT / "tests/data/quire-demo.golden.json").read_text())


class QuantizeOnLoad(unittest.TestCase):
    def size_of_loaded(self, daemon):
        model = daemon.get("/api/ps").json["models"][0]
        self.assertGreater(model["size"], 1 << 20)
        self.assertLess(model["size"], model["size_max"])
        return model["size_max"]

    def answers(self, environment):
        """The answers to the golden questions, and the size of the model that gave them."""
        with Daemon(environment) as daemon:
            texts = []
            for case in GOLDEN["chat"][:12]:
                reply = daemon.post("/api/chat", {"model": MODEL, "stream": False, "messages": case["messages"],
                                                  "options": {"temperature": 0, "num_predict": 60}})
                self.assertEqual(200, reply.status, reply.text)
                texts.append(reply.json["message"]["content"])
            return texts, self.size_of_loaded(daemon)

    def test_it_answers_as_its_floats_do_in_less_memory(self):
        floats, float_size = self.answers({"QUIRE_CACHE_BYTES": "64MiB"})
        blocks, block_size = self.answers({"QUIRE_CACHE_BYTES": "64MiB", "QUIRE_QUANTIZE_ON_LOAD": "q8_0"})
        self.assertLess(block_size, float_size)
        self.assertGreaterEqual(sum(a == b for a, b in zip(floats, blocks)), 10)

    def test_a_type_that_is_none_fails_the_load_and_names_those_that_are(self):
        with Daemon({"QUIRE_QUANTIZE_ON_LOAD": "q3"}) as daemon:
            reply = daemon.post("/api/chat", {"model": MODEL, "stream": False,
                                              "messages": [{"role": "user", "content": "x"}]})
            self.assertIn(reply.status, (400, 500))
            self.assertIn("Q8_0, Q6_K, Q4_K, Q4_0", reply.text)


if __name__ == "__main__":
    unittest.main()
