#!/usr/bin/env python3
"""Embeddings through the front door, with the bundled model."""
import base64
import math
import struct
import threading
import unittest

from harness import MODEL, Daemon, greedy

TEXTS = ["What is the capital of France?", "Rivers were roads once.", "la la la", "What is the capital of Spain?"]


class Embeddings(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

    def embed(self, **body):
        reply = self.daemon.post("/api/embed", {"model": MODEL, **body})
        self.assertEqual(200, reply.status, reply.text)
        return reply.json

    def test_vectors_are_the_same_alone_together_and_beside_answers(self):
        alone = [self.embed(input=text)["embeddings"][0] for text in TEXTS]
        self.assertEqual(len(alone), len({tuple(vector) for vector in alone}))
        for vector in alone:
            self.assertAlmostEqual(1, math.hypot(*vector), places=4)
        others = [threading.Thread(target=self.daemon.post, args=("/api/chat", greedy("Tell me a story.", num_predict=60)))
                  for _ in range(3)]
        for thread in others:
            thread.start()
        together = self.embed(input=TEXTS * 10)
        for thread in others:
            thread.join()
        self.assertEqual(alone * 10, together["embeddings"])
        self.assertGreater(together["prompt_eval_count"], 100)

    def test_the_dialects_agree(self):
        native = self.embed(input=TEXTS)["embeddings"]
        reply = self.daemon.post("/v1/embeddings", {"model": MODEL, "input": TEXTS, "encoding_format": "base64"}).json
        vectors = []
        for entry in reply["data"]:
            raw = base64.b64decode(entry["embedding"])
            vectors.append(list(struct.unpack(f"<{len(raw) // 4}f", raw)))
        as_floats = self.daemon.post("/v1/embeddings", {"model": MODEL, "input": TEXTS}).json
        packed = [struct.pack(f"<{len(v)}f", *v) for v in vectors]
        self.assertEqual(packed, [struct.pack(f"<{len(v)}f", *v) for v in native])
        self.assertEqual(packed, [struct.pack(f"<{len(e['embedding'])}f", *e["embedding"]) for e in as_floats["data"]])
        self.assertEqual(reply["usage"]["prompt_tokens"], reply["usage"]["total_tokens"])
        legacy = self.daemon.post("/api/embeddings", {"model": MODEL, "prompt": TEXTS[0]}).json["embedding"]
        length = math.hypot(*legacy)
        for value, expected in zip(legacy, native[0]):
            self.assertAlmostEqual(expected, value / length, places=5)

    def test_dimensions_and_truncation(self):
        whole = self.embed(input=TEXTS[0])["embeddings"][0]
        cut = self.embed(input=TEXTS[0], dimensions=8)["embeddings"][0]
        self.assertEqual(8, len(cut))
        self.assertAlmostEqual(1, math.hypot(*cut), places=4)
        self.assertAlmostEqual(whole[0] * cut[1], whole[1] * cut[0], places=5)
        long = "river " * 3000
        kept = self.embed(input=long, options={"num_ctx": 64})
        self.assertEqual(64, kept["prompt_eval_count"])
        for path, body, field in (("/api/embed", {"input": ["a", long], "truncate": False}, "input[1]"),
                                  ("/v1/embeddings", {"input": long}, "input"),
                                  ("/api/embed", {"input": "a", "dimensions": 1 << 20}, "dimensions"),
                                  ("/v1/embeddings", {"input": [1 << 30]}, "input")):
            reply = self.daemon.post(path, {"model": MODEL, "options": {"num_ctx": 64}, **body})
            self.assertEqual(400, reply.status, reply.text)
            self.assertIn(field, reply.text)

    def test_nothing_to_embed_gives_nothing(self):
        for body in ({}, {"input": []}, {"input": ""}):
            self.assertEqual([], self.embed(**body)["embeddings"])
        self.assertEqual([], self.daemon.post("/api/embeddings", {"model": MODEL, "prompt": ""}).json["embedding"])


class ShortQueue(unittest.TestCase):
    def test_a_request_of_more_texts_than_the_queue_has_places_is_answered(self):
        texts = [f"text {i}" for i in range(60)]
        with Daemon(environment={"OLLAMA_MAX_QUEUE": "8"}) as daemon:
            alone = daemon.post("/api/embed", {"model": MODEL, "input": texts[-1]})
            reply = daemon.post("/api/embed", {"model": MODEL, "input": texts})
        self.assertEqual(200, reply.status, reply.text)
        self.assertEqual(60, len(reply.json["embeddings"]))
        self.assertEqual(alone.json["embeddings"][0], reply.json["embeddings"][-1])


if __name__ == "__main__":
    unittest.main()
