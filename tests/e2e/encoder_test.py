#!/usr/bin/env python3
"""Encoders through the front door: vectors in all dialects, rankings, and what such models refuse."""
import base64
import math
import pathlib
import struct
import unittest

import tiny_encoders
from harness import MODEL, Daemon

TEXTS = ["hello world!", "what is a panda?", "the 3 quick foxes", "a"]


class Encoders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()
        folder = pathlib.Path(cls.daemon.folder.name)
        cls.embeds = tiny_encoders.create(cls.daemon, "tiny-embed", tiny_encoders.write_bert(folder / "embed"))
        cls.ranks = tiny_encoders.create(cls.daemon, "tiny-rank", tiny_encoders.write_bert(folder / "rank", ranks=True, seed=2))
        cls.asks = tiny_encoders.create(cls.daemon, "tiny-ask", tiny_encoders.write_ranking_decoder(folder / "ask"))

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__(None, None, None)

    def post(self, path, expected=200, **body):
        reply = self.daemon.post(path, body)
        self.assertEqual(expected, reply.status, reply.text)
        return reply.json

    def test_the_dialects_agree(self):
        native = self.post("/api/embed", model=self.embeds, input=TEXTS)["embeddings"]
        self.assertEqual(len(TEXTS), len({tuple(vector) for vector in native}))
        packed = [struct.pack(f"<{len(v)}f", *v) for v in native]
        encoded = self.post("/v1/embeddings", model=self.embeds, input=TEXTS, encoding_format="base64")["data"]
        self.assertEqual(packed, [base64.b64decode(one["embedding"]) for one in encoded])
        for vector in native:
            self.assertAlmostEqual(1, math.hypot(*vector), places=5)

    def test_the_old_route_gives_the_vector_before_its_length_is_made_one(self):
        native = self.post("/api/embed", model=self.embeds, input=TEXTS)["embeddings"]
        for text, expected in zip(TEXTS, native):
            old = self.post("/api/embeddings", model=self.embeds, prompt=text)["embedding"]
            length = math.hypot(*old)
            self.assertEqual(tiny_encoders.HIDDEN, len(old))
            self.assertGreater(abs(length - 1), 1e-3)
            for value, wanted in zip(old, expected):
                self.assertAlmostEqual(wanted, value / length, places=5)

    def test_ids_dimensions_and_long_texts(self):
        ids = [2, 12, 3]  # [CLS] h [SEP]
        self.assertEqual(self.post("/v1/embeddings", model=self.embeds, input=ids)["data"][0]["embedding"],
                         self.post("/v1/embeddings", model=self.embeds, input="h")["data"][0]["embedding"])
        cut = self.post("/v1/embeddings", model=self.embeds, input="hello", dimensions=8)["data"][0]["embedding"]
        self.assertEqual(8, len(cut))
        self.assertAlmostEqual(1, math.hypot(*cut), places=5)
        long = "river " * 100
        self.assertEqual(tiny_encoders.CONTEXT,
                         self.post("/api/embed", model=self.embeds, input=long)["prompt_eval_count"])
        for path, body, field in (("/api/embed", {"input": long, "truncate": False}, "exceeds"),
                                  ("/v1/embeddings", {"input": "a", "dimensions": 4096}, "dimensions"),
                                  ("/v1/embeddings", {"input": [1 << 30]}, "input")):
            self.assertIn(field, str(self.post(path, 400, model=self.embeds, **body)))

    def test_rankings(self):
        documents = ["hi", "the giant panda is a bear", "it is four"]
        ranked = self.post("/v1/rerank", model=self.ranks, query="what is a panda?", documents=documents)["results"]
        scores = [one["relevance_score"] for one in ranked]
        self.assertEqual(sorted(scores, reverse=True), scores)
        self.assertEqual({0, 1, 2}, {one["index"] for one in ranked})
        first = self.post("/v1/rerank", model=self.ranks, query="what is a panda?", documents=documents, top_n=1)
        self.assertEqual(ranked[:1], first["results"])
        alone = self.post("/v1/score", model=self.ranks, text_1="what is a panda?", text_2=documents[ranked[0]["index"]])
        self.assertAlmostEqual(scores[0], alone["data"][0]["score"], places=6)

    def test_a_decoder_ranks_by_its_answer(self):
        ask = {"model": self.asks, "query": "what is a panda?"}
        documents = ["hi", "the giant panda is a bear", "it is four"]
        ranked = self.post("/v1/rerank", documents=documents, **ask)["results"]
        scores = [one["relevance_score"] for one in ranked]
        self.assertEqual(sorted(scores, reverse=True), scores)
        for one in ranked:
            self.assertTrue(0 < one["relevance_score"] < 1)
            alone = self.post("/v1/rerank", documents=[documents[one["index"]]], **ask)["results"][0]
            self.assertEqual(one["relevance_score"], alone["relevance_score"])
        self.post("/v1/rerank", documents=["river " * 3000], **ask)
        self.assertIn("exceed", str(self.post("/v1/rerank", 400, documents=["river " * 3000], truncate=False, **ask)))

    def test_each_does_its_own_task_only(self):
        chat = {"messages": [{"role": "user", "content": "hi"}]}
        for model in (self.embeds, self.ranks, self.asks):
            self.assertIn("does not generate", str(self.post("/api/chat", 400, model=model, **chat)))
        for model in (self.embeds, MODEL):
            self.assertIn("does not rank", str(self.post("/v1/rerank", 400, model=model, query="a", documents=["b"])))
        for model in (self.ranks, self.asks):
            self.assertIn("not embed", str(self.post("/api/embeddings", 400, model=model, prompt="a")))
        for model, capability in ((self.embeds, "embedding"), (self.ranks, "rerank"), (self.asks, "rerank")):
            self.assertEqual([capability], self.post("/api/show", model=model)["capabilities"])


if __name__ == "__main__":
    unittest.main()
