#!/usr/bin/env python3
"""Encoders through the front door: vectors in all dialects, rankings, and what such models refuse."""
import base64
import json
import math
import pathlib
import struct
import threading
import unittest

import tiny_encoders
from harness import MODEL, Daemon, greedy

TEXTS = ["hello world!", "what is a panda?", "the 3 quick foxes", "a"]


class Encoders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon().start()
        folder = pathlib.Path(cls.daemon.folder.name)
        cls.embeds = tiny_encoders.create(cls.daemon, "tiny-embed", tiny_encoders.write_bert(folder / "embed", prompts={"query": "find: "}))
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

    def test_every_list_has_one_length_of_texts(self):
        folder = tiny_encoders.write_bert(pathlib.Path(self.daemon.folder.name) / "short", seed=3)
        (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')  # of 64 that the model could take
        name = tiny_encoders.create(self.daemon, "tiny-short", folder)
        def lengths():
            listed = {one["id"]: one for one in self.daemon.get("/v1/models").json["data"]}[f"{name}:latest"]
            return [listed["context_length"], self.daemon.get(f"/v1/models/{name}").json["context_length"],
                    self.post("/api/show", model=name)["context_length"],
                    self.daemon.get(f"/props?model={name}").json["default_generation_settings"]["n_ctx"]]
        self.assertEqual([16] * 4, lengths())
        self.post("/v1/embeddings", model=name, input="a " * 15, expected=400)
        self.assertEqual([16] * 4, lengths())
        loaded = {one["name"]: one for one in self.daemon.get("/api/ps").json["models"]}
        self.assertEqual(16, loaded[f"{name}:latest"]["context_length"])

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

    def test_prefixes_are_added_where_the_request_names_them(self):
        def embed(text, **body):
            return self.post("/v1/embeddings", model=self.embeds, input=text, **body)["data"][0]["embedding"]
        self.assertEqual(embed("find: a panda"), embed("a panda", input_type="query"))
        self.assertEqual(embed("a panda"), embed("a panda", input_type="document"))
        self.assertNotEqual(embed("a panda"), embed("a panda", input_type="search_query"))
        refused = self.post("/v1/embeddings", 400, model=self.embeds, input="a", input_type="clustering")
        self.assertEqual("input_type", refused["error"]["param"])
        self.assertIn("they define query", refused["error"]["message"])
        cohere = self.post("/v2/embed", model=self.embeds, texts=["a panda"], input_type="search_query",
                           embedding_types=["float", "ubinary"])["embeddings"]
        self.assertEqual(embed("find: a panda"), cohere["float"][0])
        signs = [int(bit) for byte in cohere["ubinary"][0] for bit in f"{byte:08b}"]
        self.assertEqual([int(value > 0) for value in cohere["float"][0]], signs)

    def test_a_request_that_names_no_prefix_gets_the_models_default_one(self):
        folder = tiny_encoders.write_bert(pathlib.Path(self.daemon.folder.name) / "default",
                                          prompts={"query": "find: ", "passage": "text: "}, default_prompt="query")
        model = tiny_encoders.create(self.daemon, "tiny-default", folder)
        plain = self.post("/api/embed", model=self.embeds, input=["find: a panda", "text: a panda", "a panda"])["embeddings"]
        self.assertEqual(plain[:1], self.post("/api/embed", model=model, input="a panda")["embeddings"])
        for name, expected in (("query", plain[0]), ("passage", plain[1]), ("none", plain[2])):
            reply = self.post("/v1/embeddings", model=model, input="a panda", input_type=name)
            self.assertEqual(expected, reply["data"][0]["embedding"])

    def test_text_embeddings_inference(self):
        native = self.post("/api/embed", model=self.embeds, input=TEXTS)["embeddings"]
        self.assertEqual(native, self.post("/embed", model=self.embeds, inputs=TEXTS))
        query = self.post("/v1/embeddings", model=self.embeds, input="a panda", input_type="query")["data"][0]["embedding"]
        self.assertEqual([query], self.post("/embed", model=self.embeds, inputs="a panda", prompt_name="query"))
        refused = self.post("/embed", 400, model=self.embeds, inputs="a", prompt_name="clustering")
        self.assertIn("prompt_name: the model's files define no prefix", refused["error"])

    def test_the_command_line(self):
        def lines(*words):
            done = self.daemon.cli(*words)
            self.assertEqual("", done.stderr)
            return [json.loads(line) for line in done.stdout.splitlines()]
        plain = self.post("/api/embed", model=self.embeds, input=["find: a panda", "river " * 100])["embeddings"]
        self.assertEqual(plain, [one["embedding"] for one in lines("embed", self.embeds, "find: a panda", "river " * 100)])
        [query] = lines("embed", self.embeds, "--input-type", "query", "a panda")
        self.assertEqual({"index": 0, "text": "a panda", "embedding": plain[0]}, query)
        refused = self.daemon.cli("embed", self.embeds, "--input-type", "clustering", "a panda")
        self.assertEqual(1, refused.returncode)
        self.assertIn("they define query", refused.stderr)
        documents = ["hi", "the giant panda is a bear", "it is four"]
        ranked = lines("rerank", self.ranks, "what is a panda?", "--json", *documents)
        self.assertEqual(ranked[:2], lines("rerank", self.ranks, "what is a panda?", "--json", "--top", "2", *documents))
        refused = self.daemon.cli("rerank", self.embeds, "what is a panda?", "hi")
        self.assertIn("does not rank", refused.stderr)

    def test_truncation_keeps_the_end_that_is_asked_for(self):
        def embed(text, **body):
            return self.post("/v1/embeddings", model=self.embeds, input=text, **body)["data"][0]["embedding"]
        room = tiny_encoders.CONTEXT - 2  # [CLS] and [SEP]; a letter is a token
        long = " ".join("abcdefgh"[i % 8] for i in range(room + 20))
        self.assertEqual(embed(" ".join(long.split()[-room:])), embed(long, truncate="START"))
        self.assertEqual(embed(" ".join(long.split()[:room])), embed(long, truncate="END"))
        self.assertIn("exceeds", str(self.post("/v1/embeddings", 400, model=self.embeds, input=long, truncate="NONE")))
        for body, field in (({"truncate": "LEFT"}, "truncate"), ({"output_dimension": 4096}, "output_dimension"),
                            ({"embedding_types": ["int8"]}, "embedding_types"), ({"texts": []}, "texts")):
            refused = self.post("/v2/embed", 400, **{"model": self.embeds, "texts": ["a"], "input_type": "clustering", **body})
            self.assertIn(field, refused["message"])

    def test_a_queue_of_texts_does_not_block_a_chat(self):
        """10,000 texts wait all the time: a request of 2,000 follows the other, five at once, until the chat has ended."""
        stop, sent = threading.Event(), threading.Barrier(6)

        def feed(number):
            for turn in range(1 << 20):
                connection = self.daemon.connect()
                body = {"model": self.embeds, "input": [f"{number} {turn} {i}" for i in range(2000)]}
                connection.request("POST", "/api/embed", json.dumps(body))
                if turn == 0:
                    sent.wait()
                while not stop.is_set():
                    connection.sock.settimeout(0.2)
                    try:
                        connection.sock.recv(1 << 16)
                        break
                    except TimeoutError:
                        pass
                connection.close()
                if stop.is_set():
                    return
        feeders = [threading.Thread(target=feed, args=(i,)) for i in range(5)]
        for feeder in feeders:
            feeder.start()
        sent.wait()
        try:
            reply = self.daemon.post("/api/chat", greedy("Tell me a story.", num_predict=20))
        finally:
            stop.set()
        for feeder in feeders:
            feeder.join()
        self.assertEqual(200, reply.status, reply.text)
        self.assertTrue(reply.lines[-1]["done"])

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
        long = "river " * 3000
        cut = self.post("/v1/rerank", documents=[long], max_tokens_per_doc=5, truncate=False, **ask)
        self.assertLess(cut["usage"]["prompt_tokens"], 400)
        other = self.post("/v1/rerank", documents=documents, instruction="Find animals.", **ask)["results"]
        self.assertNotEqual({one["index"]: one["relevance_score"] for one in ranked},
                            {one["index"]: one["relevance_score"] for one in other})
        refused = self.post("/v1/rerank", 400, model=self.ranks, query="a", documents=["b"], instruction="Find animals.")
        self.assertEqual("instruction", refused["error"]["param"])
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
