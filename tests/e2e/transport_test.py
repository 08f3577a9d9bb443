#!/usr/bin/env python3
"""The daemon under a log that nobody reads, few file descriptors, half-closed connections, refused uploads and floods."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import unittest

from harness import BIN, MODEL, TIMEOUT_S, Daemon, UnreadDaemon, client_hello, greedy

LIVE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


ASSET = b"GET /ui/vendor/highlight.mjs HTTP/1.1\r\nHost: localhost\r\n\r\n"  # 127 KB, without a key


def connect(port, source="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", port), TIMEOUT_S, (source, 0))


def ask_without_reading(port, request, source="127.0.0.1"):
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.bind((source, 0))
    client.settimeout(TIMEOUT_S)
    client.connect(("127.0.0.1", port))
    with contextlib.suppress(ConnectionError):
        client.sendall(request)
    return client


def read_to_end(connection):
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            received += piece
    return received


def exchange(port, request):
    with connect(port) as connection:
        connection.sendall(request)
        return read_to_end(connection)


def post(path, body, connection="close"):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: {connection}\r\n"
            f"Content-Length: {len(data)}\r\n\r\n").encode() + data


def wait_until(condition, what):
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class Log(unittest.TestCase):
    REQUESTS = 6000  # more than a pipe and the queue behind it hold

    def test_a_log_that_nobody_reads_stops_nothing(self):
        with UnreadDaemon() as daemon:
            connection = daemon.connect()
            answered = 0
            connection.timeout = 30
            for _ in range(self.REQUESTS):
                try:
                    connection.request("GET", "/livez")
                    answered += connection.getresponse().read() == b'{"status":"ok"}'
                except TimeoutError:
                    break
            self.assertEqual(self.REQUESTS, answered)
            scrape = daemon.get("/metrics").text
            self.assertRegex(scrape, r"\nquire_log_lines_dropped_total \d")
            # Whoever reads again learns what is missing, and the last lines of the daemon.
            daemon.process.send_signal(signal.SIGTERM)
            rest = daemon.process.stderr.read().decode()
            self.assertEqual(0, daemon.process.wait(TIMEOUT_S))
            kept = rest.count(" path=/livez ")
            dropped = sum(int(count) for count in re.findall(r"log lines dropped count=(\d+)", rest))
            self.assertGreater(kept, 0)
            self.assertIn("stopped connections_left=0", rest)
            print(f"{kept} lines of requests kept, {dropped} lines dropped")

    def test_the_end_does_not_wait_for_a_log_that_nobody_reads(self):
        with UnreadDaemon() as daemon:
            connection = daemon.connect()
            for _ in range(1000):
                connection.request("GET", "/livez")
                connection.getresponse().read()
            daemon.process.send_signal(signal.SIGTERM)
            self.assertEqual(0, daemon.process.wait(30))  # nobody has read a line


class Descriptors(unittest.TestCase):
    FILES = 256

    @contextlib.contextmanager
    def daemon(self, **environment):
        daemon = Daemon(environment)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        # A child inherits the limit; this process needs its descriptors again.
        with open(daemon.log_path, "ab") as log:
            daemon.process = subprocess.Popen(
                [BIN / "quired"], env=daemon.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, self.FILES)))
        self.assertEqual(before, resource.getrlimit(resource.RLIMIT_NOFILE))
        wait_until(lambda: " models=" in daemon.log(), daemon.log())
        daemon.port = int(re.search(r"address=127\.0\.0\.1:(\d+)", daemon.log())[1])
        try:
            yield daemon
        finally:
            daemon.__exit__(*sys.exc_info())

    def test_silent_connections_do_not_take_the_last_descriptor(self):
        with self.daemon() as daemon, contextlib.ExitStack() as held:
            for _ in range(2 * self.FILES):
                held.enter_context(connect(daemon.port))
            self.assertIn(b'{"status":"ok"}', exchange(daemon.port, LIVE))
            # Neither does a model that is loaded meanwhile.
            reply = daemon.post("/api/chat", greedy("Hello", num_predict=2) | {"stream": False})
            self.assertEqual(200, reply.status, reply.text)
            limits = re.search(r"connections limited max_connections=(\d+) open_files=(\d+)", daemon.log())
            self.assertIsNotNone(limits, daemon.log())
            self.assertEqual(self.FILES, int(limits[2]))
            self.assertLess(int(limits[1]), self.FILES - 32)
            self.assertNotIn("accept failed", daemon.log())

    def test_health_is_answered_while_every_place_is_taken(self):
        with self.daemon(QUIRE_MAX_CONNECTIONS="4") as daemon, contextlib.ExitStack() as held:
            story = greedy("Tell me a story.", num_predict=2000) | {"model": MODEL, "stream": True}
            story["options"]["num_ctx"] = 4096
            story["options"]["min_tokens"] = 2000
            for _ in range(4):
                busy = held.enter_context(connect(daemon.port))
                busy.sendall(post("/api/chat", story))
                self.assertTrue(busy.recv(1))  # it runs
            for path in (b"/livez", b"/readyz"):
                self.assertIn(b'{"status":"ok"}', exchange(daemon.port, LIVE.replace(b"/livez", path)))
            refused = exchange(daemon.port, LIVE.replace(b"/livez", b"/api/tags"))
            self.assertTrue(refused.startswith(b"HTTP/1.1 503 "), refused)

    def test_health_is_answered_while_nobody_reads_in_the_reserved_places(self):
        with self.daemon(QUIRE_MAX_CONNECTIONS="4") as daemon, contextlib.ExitStack() as held:
            for _ in range(4):
                events = held.enter_context(connect(daemon.port))
                events.sendall(b"GET /quire/now HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
                self.assertTrue(events.recv(1))
            for _ in range(8):
                self.assertTrue(held.enter_context(ask_without_reading(daemon.port, ASSET)).recv(1))
            self.assertIn(b'{"status":"ok"}', exchange(daemon.port, LIVE))

    def test_bodies_that_do_not_come_keep_nobody_out(self):
        with self.daemon(QUIRE_MAX_CONNECTIONS="4") as daemon, contextlib.ExitStack() as held:
            for _ in range(4):
                silent = held.enter_context(connect(daemon.port))
                silent.sendall(b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
            tags = LIVE.replace(b"/livez", b"/api/tags")
            wait_until(lambda: exchange(daemon.port, tags).startswith(b"HTTP/1.1 200 "), "every place is taken")
            self.assertIn(" error=replaced", daemon.log())

    def test_answers_that_nobody_reads_keep_nobody_out(self):
        with self.daemon() as daemon, contextlib.ExitStack() as held:
            kept = http.client.HTTPConnection("127.0.0.1", daemon.port, TIMEOUT_S, source_address=("127.0.0.2", 0))
            held.callback(kept.close)
            kept.request("GET", "/livez")
            kept.getresponse().read()
            own = kept.sock
            pipelined = 1000 * LIVE.replace(b"Connection: close\r\n", b"")
            for index in range(2 * self.FILES):
                held.enter_context(ask_without_reading(daemon.port, pipelined if index % 2 else ASSET))
            chat = post("/api/chat", greedy("Hello", num_predict=2) | {"model": MODEL, "stream": False})
            begin = time.monotonic()
            wait_until(lambda: exchange(daemon.port, chat).startswith(b"HTTP/1.1 200 "), "every place is taken")
            print(f"a chat from the address of the readers after {time.monotonic() - begin:.1f} s")
            # Others have their connections still: the address with the most of them pays.
            kept.request("GET", "/livez")
            self.assertEqual(200, kept.getresponse().status)
            self.assertIs(own, kept.sock)


class HalfClose(unittest.TestCase):
    def test_a_client_that_has_said_all_gets_its_answer(self):
        with Daemon() as daemon:
            body = greedy("Hello!", num_predict=8)
            expected = daemon.post("/api/chat", body | {"stream": False}).json["message"]["content"]
            for stream in (False, True):
                with connect(daemon.port) as client:
                    client.sendall(post("/api/chat", body | {"stream": stream}))
                    client.shutdown(socket.SHUT_WR)
                    reply = read_to_end(client)
                self.assertTrue(reply.startswith(b"HTTP/1.1 200 OK\r\n"), reply)
                text = "".join(re.findall(r'"content":"([^"]*)"', reply.decode()))
                self.assertEqual(expected, json.loads(f'"{text}"'))

    def test_a_client_that_has_gone_ends_its_generation(self):
        with Daemon() as daemon:
            for stream in (False, True):
                body = greedy("Tell me a story.", num_predict=4000, num_ctx=8192, min_tokens=4000)
                client = connect(daemon.port)
                client.sendall(post("/api/chat", body | {"stream": stream}))
                if stream:
                    self.assertTrue(client.recv(1))
                else:
                    wait_until(lambda: "quire_requests_running{" in daemon.get("/metrics").text and re.search(
                        r"quire_requests_running{.*} 1\n", daemon.get("/metrics").text), "it does not run")
                client.close()
                count = 2 if stream else 1
                wait_until(lambda: len(re.findall(r"path=/api/chat .*error=\"client gone\"", daemon.log())) == count,
                           daemon.log())


class EarlyRefusals(unittest.TestCase):
    """Clients that write their whole request before they read."""
    BYTES = 512 << 20

    def upload(self, port, path, fields=""):
        with connect(port) as client:
            client.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{fields}"
                           f"Content-Length: {self.BYTES}\r\n\r\n".encode())
            piece = b"x" * (1 << 20)
            begin = time.monotonic()
            for _ in range(self.BYTES // len(piece)):
                client.sendall(piece)
            print(f"{self.BYTES >> 20} MiB were taken in {time.monotonic() - begin:.2f} s")
            return read_to_end(client)

    def test_a_refusal_outlives_the_upload(self):
        daemon = Daemon({"QUIRE_MAX_BODY": "1MiB"})
        with daemon:
            self.assertTrue(self.upload(daemon.port, "/api/chat").startswith(b"HTTP/1.1 413 "))
        daemon = Daemon()
        folder = pathlib.Path(daemon.folder.name)
        made = subprocess.run([BIN / "quire", "key", "user", "--append", folder / "keys"], check=True, text=True,
                              capture_output=True)
        key = made.stdout.strip()
        daemon.environment["QUIRE_KEYS"] = str(folder / "keys")
        with daemon:
            self.assertTrue(self.upload(daemon.port, "/api/chat").startswith(b"HTTP/1.1 401 "))
            blob = "/api/blobs/sha256:" + "a" * 64
            self.assertTrue(self.upload(daemon.port, blob).startswith(b"HTTP/1.1 401 "))
            reply = self.upload(daemon.port, blob, f"Authorization: Bearer {key}\r\n")
            self.assertTrue(reply.startswith(b"HTTP/1.1 403 "), reply)


class Memory(unittest.TestCase):
    HANDSHAKES = 3000
    KEPT_MIB = 32  # above what the daemon has before

    @staticmethod
    def rss_mib(daemon):
        pages = int((pathlib.Path("/proc") / str(daemon.process.pid) / "statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    def test_a_flood_of_half_handshakes_leaves_no_memory_behind(self):
        daemon = Daemon()
        folder = pathlib.Path(daemon.folder.name)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "2", "-subj", "/CN=cert", "-keyout", folder / "key", "-out", folder / "cert"],
                       check=True, capture_output=True)
        daemon.environment |= {"QUIRE_TLS_HOST": "127.0.0.1:0", "QUIRE_TLS_CERT": str(folder / "cert"),
                               "QUIRE_TLS_KEY": str(folder / "key")}
        with open(daemon.log_path, "ab") as out:
            daemon.process = subprocess.Popen([BIN / "quired"], env=daemon.environment, stdin=subprocess.DEVNULL,
                                              stdout=out, stderr=out)
        wait_until(lambda: " models=" in daemon.log(), daemon.log())
        found = re.search(r"address=127\.0\.0\.1:(\d+),tls:127\.0\.0\.1:(\d+) ", daemon.log())
        daemon.port, port = int(found[1]), int(found[2])
        try:
            daemon.get("/livez")
            before = peak = self.rss_mib(daemon)
            hello = client_hello()
            clients = []
            with contextlib.ExitStack() as held:
                for _ in range(self.HANDSHAKES):
                    client = held.enter_context(connect(port))
                    with contextlib.suppress(OSError):
                        client.sendall(hello)
                    clients.append(client)
                for client in clients:  # the server has answered, or closed it for another
                    with contextlib.suppress(OSError):
                        client.recv(1)
                    peak = max(peak, self.rss_mib(daemon))
            after = self.rss_mib(daemon)
            begin = time.monotonic()
            while after > before + self.KEPT_MIB and time.monotonic() < begin + 30:
                time.sleep(0.1)
                after = self.rss_mib(daemon)
            print(f"{before:.0f} MiB before, {peak:.0f} at the peak, {after:.0f} "
                  f"{time.monotonic() - begin:.1f} s after the flood")
            self.assertLess(after, before + self.KEPT_MIB)
        finally:
            daemon.__exit__(*sys.exc_info())


if __name__ == "__main__":
    unittest.main(verbosity=2)
