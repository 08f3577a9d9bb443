#!/usr/bin/env python3
"""What other programs read of a daemon: traces for a collector, metrics under vLLM's names, the report of a node."""
import http.server
import json
import queue
import re
import threading
import time
import unittest

import suites
from harness import MODEL, Daemon, greedy

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
WAIT_S = 120


class Collector:
    """Takes OTLP over HTTP; `spans` has them in their order."""

    def __enter__(self):
        self.spans = queue.Queue()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for resource in body["resourceSpans"]:
                    for scope in resource["scopeSpans"]:
                        for span in scope["spans"]:
                            collector.spans.put((self.path, span))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"


def send_chat(test, daemon, text, headers=None):
    reply = daemon.request("POST", "/api/chat", greedy(text, num_predict=8) | {"stream": False}, headers)
    test.assertEqual(200, reply.status, reply.text)


class Signals(unittest.TestCase):
    def test_a_collector_gets_the_stages_of_a_request(self):
        with Collector() as collector, Daemon({"QUIRE_OTLP_ENDPOINT": collector.url()}) as daemon:
            send_chat(self, daemon, "Not sampled.", {"traceparent": PARENT[:-1] + "0"})
            send_chat(self, daemon, "What is a prefix cache?", {"traceparent": PARENT})
            path, root = collector.spans.get(timeout=WAIT_S)
            self.assertEqual("/v1/traces", path)
            self.assertEqual(f"chat {MODEL}:latest", root["name"])
            self.assertEqual(PARENT.split("-")[1:3], [root["traceId"], root["parentSpanId"]])
            stages = {}
            while "decode" not in stages:
                _, span = collector.spans.get(timeout=WAIT_S)
                self.assertEqual(root["spanId"], span["parentSpanId"])
                stages[span["name"]] = int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])
            self.assertLessEqual({"queue", "prefill", "decode"}, set(stages))
            whole = int(root["endTimeUnixNano"]) - int(root["startTimeUnixNano"])
            self.assertLessEqual(sum(stages.values()), whole)
            text = json.dumps(root)
            self.assertIn("gen_ai.usage.input_tokens", text)
            self.assertNotIn("prefix cache?", text)
            deadline = time.monotonic() + WAIT_S
            while "quire_traces_sent_total 1" not in daemon.get("/metrics").text:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)

    def test_no_collector_delays_nothing(self):
        with Daemon({"QUIRE_OTLP_ENDPOINT": "http://127.0.0.1:9"}) as daemon:
            send_chat(self, daemon, "Hi")
            deadline = time.monotonic() + WAIT_S
            while "quire_traces_dropped_total 1" not in daemon.get("/metrics").text:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            self.assertIn("traces: the collector takes none", daemon.log())
        with self.assertRaisesRegex(RuntimeError, "QUIRE_OTLP_ENDPOINT|otlp-endpoint"):
            Daemon({"QUIRE_OTLP_ENDPOINT": "collector:4318"}).start()

    def test_metrics_have_vllms_names(self):
        with Daemon({"QUIRE_METRICS_COMPAT": "vllm"}) as daemon:
            send_chat(self, daemon, "Hi")
            text = daemon.metrics()
            labels = f'{{engine="0",model_name="{MODEL}:latest"'
            for name in ("kv_cache_usage_perc", "generation_tokens_total", "prompt_tokens_total",
                         "time_to_first_token_seconds_count", "e2e_request_latency_seconds_count",
                         "request_prompt_tokens_count"):
                self.assertIn(f"vllm:{name}{labels}", text)
            self.assertIn('vllm:request_success_total{engine="0",finished_reason="length",model_name=', text)
            self.assertRegex(text, r'(?m)^quire_pending_prefill_seconds\{model="' + MODEL + r':latest"\} 0$')

    def test_a_node_reports_its_load(self):
        with Daemon() as daemon:
            before = daemon.get("/quire/node").json
            self.assertEqual({}, before["models"])
            self.assertIn(f"{MODEL}:latest", before["stored"])
            send_chat(self, daemon, "Rivers were roads once, and boats carried stone and wine and bread to the sea. " * 4)
            daemon.metrics()  # the chat is over, and counted
            report = daemon.get("/quire/node").json
            self.assertTrue(report["ready"])
            model = report["models"][f"{MODEL}:latest"]
            self.assertTrue(model["loaded"])
            self.assertGreater(model["prefill_bytes_per_second"], 0)
            self.assertEqual(0, report["running"] + report["waiting"])
            self.assertEqual(0, report["pending_prefill_seconds"])
            self.assertGreater(report["memory_bytes"], 0)
            self.assertEqual(0, len(re.findall("Rivers", json.dumps(report))))


if __name__ == "__main__":
    suites.run()
