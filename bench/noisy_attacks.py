"""The attacks of noisy_neighbor.py: each runs until an event is set, and counts the replies that it got."""
import collections
import contextlib
import fcntl
import gzip
import hashlib
import http.client
import itertools
import json
import pathlib
import selectors
import socket
import string
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from harness import MODEL, Daemon, TlsDaemon, UnreadDaemon, client_hello  # noqa: E402

IP_BIND_ADDRESS_NO_PORT = 24  # Linux; not in the module socket


# What each request of the attacker has: with --keys its key.
FIELDS = {}


def raw_fields():
    return "".join(f"{name}: {value}\r\n" for name, value in FIELDS.items()).encode()


def chat(text="Hello!", **more):
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "stream": False} | more


def with_schema(schema):
    return chat(format=schema, options={"num_predict": 1})


def dag(levels, width):
    defs = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * width} for i in range(levels)}
    return {"$defs": defs | {f"d{levels}": {"type": "integer"}}, "$ref": "#/$defs/d0"}


def template(source):
    return {"model": MODEL, "prompt": "Hello!", "template": source, "stream": False, "options": {"num_predict": 1}}


def encoded(body):
    return body if isinstance(body, bytes) else json.dumps(body).encode()


def post(path, body, address=""):
    """An attack that sends `body` over and over; made again each time if it is a function."""
    def run(port, seen, ended):
        raw = None if callable(body) else encoded(body)
        while not ended.is_set():
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60, source_address=(address, 0))
                connection.request("POST", path, raw if raw is not None else encoded(body()), FIELDS)
                reply = connection.getresponse()
                reply.read()
                seen[reply.status] += 1
            except OSError as error:
                seen[type(error).__name__] += 1
            finally:
                connection.close()
    return run


def one_letter_changed(body, where):
    """Makes the body with another letter before the end of `where` each time, so that nothing that was made of it is used again."""
    before, after = json.dumps(body).encode().split(where, 1)
    numbers = itertools.count()
    return lambda: before + where[:-1] + b"%d" % next(numbers) + where[-1:] + after


def for_two_models(body):
    """For the chat model, which may not do that, and for one that is not there, in turns."""
    raw = itertools.cycle([json.dumps({"model": name} | body).encode() for name in (MODEL, "unknown")])
    return lambda: next(raw)


def hang_up(path, body, after=0.05):
    """Sends a request and leaves."""
    raw = json.dumps(body).encode()

    def run(port, seen, ended):
        while not ended.is_set():
            with socket.create_connection(("127.0.0.1", port), 10) as s:
                s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n"
                          % (path.encode(), raw_fields(), len(raw)) + raw)
                time.sleep(after)
            seen["left"] += 1
    return run


def get(path):
    def run(port, seen, ended):
        while not ended.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", path, headers=FIELDS)
            reply = connection.getresponse()
            reply.read()
            seen[reply.status] += 1
            connection.close()
    return run


def endless_stream(port, buffer=1 << 18, headers=None, address="", model=MODEL):
    """A connection on which a stream without end was asked for; the model's EOS does not count."""
    body = json.dumps(chat("Tell me a story.", stream=True, ignore_eos=True, model=model)).encode()
    more = "".join(f"{name}: {value}\r\n" for name, value in ((headers or {}) | FIELDS).items()).encode()
    stream = socket.socket()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    stream.settimeout(10)
    stream.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)  # floods leave ports in TIME_WAIT
    stream.bind((address, 0))
    stream.connect(("127.0.0.1", port))
    stream.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n" % (more, len(body)) + body)
    return stream


def stalled_streams(port, seen, ended):
    """Streams whose reader reads nothing."""
    held = []
    while not ended.is_set():
        if len(held) < 16:
            held.append(endless_stream(port, 4096))
            seen["open"] += 1
        time.sleep(0.02)
    for s in held:
        s.close()


def silent_connections(port, seen, ended):
    held = []
    while not ended.is_set():
        if len(held) < 300:
            held.append(socket.create_connection(("127.0.0.1", port), 10))
            seen["open"] += 1
        time.sleep(0.005)
    for s in held:
        s.close()


def connects(port, seen, ended):
    """Opens connections without pause, and holds the last 1,200."""
    held = collections.deque()
    while not ended.is_set():
        with contextlib.suppress(OSError):
            held.append(socket.create_connection(("127.0.0.1", port), 10))
            seen["opened"] += 1
        if len(held) > 1200:
            held.popleft().close()
    for client in held:
        client.close()


def silent_bodies(port, seen, ended):
    """300 connections whose body was announced and does not come; each is opened again when the server closes it."""
    held = selectors.DefaultSelector()
    while not ended.is_set():
        if len(held.get_map()) < 300:
            client = socket.create_connection(("127.0.0.1", port), 10)
            with contextlib.suppress(OSError):
                client.sendall(b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: 60000000\r\n\r\n" % raw_fields())
            held.register(client, selectors.EVENT_READ)
            seen["open"] += 1
        for key, _ in held.select(0.001):
            with contextlib.suppress(OSError):
                piece = key.fileobj.recv(1 << 12)
                seen[int(piece[9:12]) if piece.startswith(b"HTTP/1.1 ") else "closed"] += 1
            held.unregister(key.fileobj)
            key.fileobj.close()
    for key in list(held.get_map().values()):
        key.fileobj.close()


def uploads(port, seen, ended):
    """200 connections on which a blob of 4 TiB comes as fast as it is taken."""
    held, piece = selectors.DefaultSelector(), b"y" * (1 << 20)
    for number in range(200):
        client = socket.create_connection(("127.0.0.1", port), 10)
        digest = hashlib.sha256(b"%d %d" % (id(held), number)).hexdigest().encode()
        client.sendall(b"POST /api/blobs/sha256:%s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n" % (
            digest, raw_fields(), 4 << 40))
        client.setblocking(False)
        held.register(client, selectors.EVENT_WRITE)
        seen["open"] += 1
    while not ended.is_set():
        for key, _ in held.select(0.01):
            with contextlib.suppress(OSError):
                seen["bytes"] += key.fileobj.send(piece)
    for key in list(held.get_map().values()):
        key.fileobj.close()


def compressed_bodies(port, seen, ended):
    """32 bodies at once, each a thousand times as large as what is sent."""
    body = gzip.compress(b'{"model":"x","messages":[' + b" " * (60 << 20) + b"]}")
    head = (b"POST /api/chat HTTP/1.1\r\nHost: localhost\r\n%sContent-Encoding: gzip\r\nContent-Length: %d\r\n"
            b"Connection: close\r\n\r\n" % (raw_fields(), len(body)))
    while not ended.is_set():
        clients = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(32)]
        for client in clients:
            client.sendall(head + body)
        for client in clients:
            client.settimeout(60)
            try:
                seen[client.recv(12)[9:].decode() or "closed"] += 1
            except OSError as error:
                seen[type(error).__name__] += 1
            client.close()


def embedding_replies(port, seen, ended):
    """25 connections that stay open and ask for 65,000 numbers each time, of texts whose vectors are known."""
    def request(texts):
        body = json.dumps({"model": MODEL, "input": ["a"] * texts}).encode()
        return b"POST /api/embed HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n" % (raw_fields(), len(body)) + body

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/api/embed", json.dumps({"model": MODEL, "input": "a"}), FIELDS)
    width = len(json.loads(connection.getresponse().read())["embeddings"][0])
    connection.close()
    raw = request(min(65_000 // width, 2048))
    left = dict.fromkeys((socket.create_connection(("127.0.0.1", port), 60) for _ in range(25)), 0)
    clients = selectors.DefaultSelector()
    for client in left:
        clients.register(client, selectors.EVENT_READ)
        client.sendall(raw)
    while not ended.is_set():
        for key, _ in clients.select(0.1):
            piece = key.fileobj.recv(1 << 18)
            if piece.startswith(b"HTTP/1.1 "):
                seen[int(piece[9:12])] += 1
                header, _, body = piece.partition(b"\r\n\r\n")
                left[key.fileobj] = int(header.split(b"Content-Length: ")[1].split(b"\r\n")[0]) - len(body)
            else:
                left[key.fileobj] -= len(piece)
            if left[key.fileobj] == 0:
                key.fileobj.sendall(raw)
            elif not piece:
                clients.unregister(key.fileobj)
    for client in left:
        client.close()


def views(paths, count):
    """So many pages of the console, all of them read, each opened again when the server closes it."""
    def run(port, seen, ended):
        streams = selectors.DefaultSelector()
        while not ended.is_set():
            if len(streams.get_map()) < count:
                client = socket.create_connection(("127.0.0.1", port), 10)
                path = paths[seen["open"] % len(paths)]
                client.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\n%sAccept: text/event-stream\r\n\r\n"
                               % (path.encode(), raw_fields()))
                streams.register(client, selectors.EVENT_READ)
                seen["open"] += 1
            for key, _ in streams.select(0.001 if len(streams.get_map()) < count else 0.5):
                try:
                    piece = key.fileobj.recv(1 << 16)
                except OSError:
                    piece = b""
                if piece.startswith(b"HTTP/1.1 "):
                    seen[int(piece[9:12])] += 1
                if not piece or piece.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5")):
                    streams.unregister(key.fileobj)
                    key.fileobj.close()
        for key in list(streams.get_map().values()):
            key.fileobj.close()
    return run


def streams_of_one_address(count):
    """This many streams at once of each client, all of them read, each opened again when it was refused. Without keys each has
    a credential of its own, which nobody checks."""
    credentials = itertools.count()

    def run(port, seen, ended):
        streams = selectors.DefaultSelector()
        while not ended.is_set():
            if len(streams.get_map()) < count:
                headers = {"Authorization": f"Bearer {next(credentials)}"}
                streams.register(endless_stream(port, headers=headers, address=ATTACKER), selectors.EVENT_READ, "status")
            for key, _ in streams.select(0.01):
                piece = key.fileobj.recv(1 << 16)
                if key.data == "status":
                    seen[int(piece[9:12])] += 1
                    streams.modify(key.fileobj, selectors.EVENT_READ, "")
                if not piece or piece.startswith(b"HTTP/1.1 503"):
                    streams.unregister(key.fileobj)
                    key.fileobj.close()
        for key in list(streams.get_map().values()):
            key.fileobj.close()
    return run


ATTACKER = "127.0.0.1"
LONG = "word " * 6000
STRINGS = {f"p{i}": {"type": "string", "pattern": "(a|b)*a(a|b){11}c%d" % i} for i in range(200)}
TOOLS = [{"type": "function", "function": {"name": f"f{i}", "parameters": {"type": "object", "properties": STRINGS}}}
         for i in range(8)]
ATTACKS = {
    "schema_dag": post("/api/chat", with_schema(dag(30, 4))),
    "schema_patterns": post("/api/chat", with_schema({"type": "object", "properties": STRINGS})),
    "schema_names": post("/api/chat", with_schema({
        "type": "object", "propertyNames": {"pattern": "^[a-z]{1,40}[0-9]{1,40}$"},
        "properties": {f"property{i}": True for i in range(4000)}})),
    "schema_properties": post("/api/chat", with_schema({
        "type": "object", "properties": {f"p{i}": True for i in range(60_000)}})),
    "schema_required": post("/api/chat", with_schema({
        "type": "object", "required": [f"p{i}" for i in range(60_000)]})),
    "schema_enums": post("/api/chat", with_schema({"allOf": [{"enum": list(range(60_000))}] * 2})),
    "schema_one_of": post("/api/chat", with_schema({
        "oneOf": [{"type": "object", "required": [f"k{i}"], "properties": {f"k{i}": {"const": i}}} for i in range(400)]})),
    "schema_regex": post("/api/chat", with_schema({"type": "string", "pattern": "(a|b)*a(a|b){24}c"})),
    "schema_repeats": post("/api/chat", with_schema({"type": "string", "pattern": "((a{1,100}){1,100}){1,100}"})),
    "grammar_ambiguous": post("/v1/chat/completions", chat(
        grammar='root ::= text\ntext ::= word text | "0"\nword ::= [^\\x00] word [\\x02]? | [^\\x01]', max_tokens=64)),
    "schema_changing": post("/api/chat", lambda: with_schema({
        "type": "object", "properties": STRINGS, "title": str(time.monotonic_ns())})),
    "schema_values": post("/api/chat", lambda: with_schema({
        "enum": [[0] * 300_000], "anyOf": [{"type": "array"}] * 500, "title": str(time.monotonic_ns())})),
    "schema_paths": post("/api/chat", lambda: with_schema({
        "properties": {"x" * 500_000: {"anyOf": [{}] * 120_000}}, "title": str(time.monotonic_ns())})),
    "schema_left": hang_up("/api/chat", with_schema({"type": "object", "properties": STRINGS})),
    "gbnf_class": post("/v1/chat/completions", chat(
        grammar="root ::= [" + "".join(chr(0x10000 + 2 * i) for i in range(250_000)) + "]", max_tokens=1)),
    "kwargs_keys": post("/v1/chat/completions", chat(
        chat_template_kwargs={f"k{i}": 1 for i in range(500_000)}, max_tokens=1)),
    "tools_required": post("/v1/chat/completions", chat(tools=TOOLS, tool_choice="required", max_tokens=1)),
    "tools_auto": post("/v1/chat/completions", one_letter_changed(chat(tools=TOOLS, max_tokens=1), b'f0"')),
    "template_center": post("/api/generate", template("{{ range $i, $c := .Prompt }}{{ end }}" * 2000)),
    "template_printf": post("/api/generate", template('{{ printf "%1000000000s" .Prompt }}')),
    "go_variables": post("/api/generate", template("".join(
        "{{$%s:=1}}" % "".join(name) for name in itertools.islice(itertools.product(string.ascii_lowercase, repeat=4), 87_000)))),
    "bytes": post("/api/generate", b'{"model":"%s","raw":true,"stream":false,"prompt":"' % MODEL.encode() +
                  b"\xff" * (60 << 20) + b'"}'),
    "long_prompt": post("/api/generate", {"model": MODEL, "raw": True, "stream": False, "prompt": LONG * 300,
                                          "options": {"num_predict": 1}}),
    "many_messages": post("/api/chat", {"model": MODEL, "stream": False, "options": {"num_predict": 1},
                                        "messages": [{"role": "user", "content": "a"}] * 100_000}),
    "one_word": post("/api/generate", {"model": MODEL, "raw": True, "stream": False, "prompt": "a" * (4 << 20),
                                       "options": {"num_predict": 1}}),
    "tokenize": post("/tokenize", {"model": MODEL, "content": LONG * 300}),
    "embed": post("/api/embed", {"model": MODEL, "input": [LONG] * 16}),
    "embedding_replies": embedding_replies,
    "mirostat": post("/api/generate", lambda: {
        "model": MODEL, "prompt": str(time.monotonic_ns()), "stream": False,
        "options": {"mirostat": 2, "mirostat_tau": 3e38, "num_predict": 8}}),
    "uploads": uploads,
    "long_context": post("/api/chat", lambda: chat(f"{time.time()} " + LONG, options={"num_predict": 1})),
    "many_choices": post("/v1/completions", {"model": MODEL, "prompt": "a", "n": 64, "max_tokens": 64}),
    "endless": hang_up("/v1/chat/completions", chat("Tell me a story.", stream=True, ignore_eos=True), after=5),
    "stalled_streams": stalled_streams,
    "silent_connections": silent_connections,
    "connects": connects,
    "silent_bodies": silent_bodies,
    "show_body": post("/api/show", b'{"model":"%s","x":[' % MODEL.encode() + b"1," * (20 << 20) + b"1]}"),
    "show_verbose": post("/api/show", {"model": MODEL, "verbose": True}),
    "create_body": post("/api/create", b'{"model":"x","from":"%s","x":[' % MODEL.encode() + b"1," * (20 << 20) + b"1]}"),
    "copy": post("/api/copy", lambda: {"source": MODEL, "destination": f"copy-{time.monotonic_ns()}"}),
    "tags": get("/api/tags"),
    "metrics": get("/metrics"),
    "now": get("/quire/now"),
    "now_streams": views(["/quire/now"], 150),
    "view_streams": views(["/quire/now", f"/quire/cache/{MODEL}"], 250),
    "rerank_query": post("/v1/rerank", for_two_models({"query": "q" * (4 << 20), "documents": ["d"] * 2000})),
    "response_fields": post("/completion", for_two_models({
        "prompt": "Hello!", "n_predict": 1, "response_fields": [f"f{i}/g" for i in range(500_000)]})),
    "n_cmpl": post("/completion", for_two_models({"prompt": "p" * (4 << 20), "n_cmpl": 64, "n_predict": 1})),
    "ui": get("/ui/vendor/highlight.mjs"),
    "compressed_bodies": compressed_bodies,
    "infill": post("/infill", {"model": MODEL, "input_prefix": LONG * 20, "input_suffix": LONG * 20, "n_predict": 1,
                               "input_extra": [{"filename": f"f{i}", "text": "x"} for i in range(2000)]}),
    "slots": post("/slots/0?action=restore", {"model": MODEL, "filename": "unknown"}),
}


def read_endless_streams(port, model, ended):
    while not ended.is_set():
        with contextlib.suppress(OSError), endless_stream(port, address=ATTACKER, model=model) as stream:
            stream.settimeout(0.2)
            while not ended.is_set():
                with contextlib.suppress(TimeoutError):
                    if not stream.recv(1 << 16):
                        break


def other_model(*endless):
    """Of these models a stream without end, which is read; and short requests for a model for which there is no room."""
    def run(port, seen, ended):
        readers = [threading.Thread(target=read_endless_streams, args=(port, model, ended), daemon=True) for model in endless]
        for reader in readers:
            reader.start()
        post("/api/chat", chat(model="other", options={"num_predict": 1}), ATTACKER)(port, seen, ended)
        for reader in readers:
            reader.join()
    return run


@contextlib.contextmanager
def with_other_model(daemon):
    modelfile = pathlib.Path(daemon.folder.name) / "Modelfile"
    modelfile.write_text(f"FROM {ROOT / 'packaging/models/quire-demo-Q8_0.gguf'}\n")
    made = daemon.cli("create", "other", "-f", str(modelfile))
    assert made.returncode == 0, made.stderr
    yield


@contextlib.contextmanager
def with_locked_store(daemon):
    with open(pathlib.Path(daemon.environment["OLLAMA_MODELS"]) / ".quire-lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def copies_and_lists(port, seen, ended):
    """What waits for the store's lock, and what reads the store."""
    copy = post("/api/copy", lambda: {"source": MODEL, "destination": f"copy-{time.monotonic_ns()}"})
    waiting = [threading.Thread(target=copy, args=(port, seen, ended), daemon=True) for _ in range(4)]
    for thread in waiting:
        thread.start()
    get("/api/tags")(port, seen, ended)
    for thread in waiting:
        thread.join(10)


class TlsHandshakes:
    """Silent connections that then all send the same first flight of a handshake at once, which is never continued."""
    CONNECTIONS = 200  # of each client

    def __init__(self):
        self.port = 0

    @contextlib.contextmanager
    def scene(self, daemon):
        self.port = daemon.tls_port
        yield

    def attack(self, port, seen, ended):
        hello = client_hello()
        while not ended.is_set():
            clients = [socket.create_connection(("127.0.0.1", self.port), 10, (ATTACKER, 0)) for _ in range(self.CONNECTIONS)]
            for client in clients:
                with contextlib.suppress(OSError):
                    client.sendall(hello)
            for client in clients:
                with contextlib.suppress(OSError):
                    seen["answered" if not ended.is_set() and client.recv(1) else "closed"] += 1
                client.close()


TLS_HANDSHAKES = TlsHandshakes()

# name: attack of one key beside an innocent with another
CROWDS = {"address_streams": streams_of_one_address(8), "address_queue": streams_of_one_address(128)}

ONE_MODEL = {"OLLAMA_MAX_LOADED_MODELS": "1"}
# name: (attack, the kind of daemon, its environment, what is there while it runs)
SCENES = {
    "other_model": (other_model(MODEL), Daemon, ONE_MODEL, with_other_model),
    "two_models": (other_model(MODEL, "other"), Daemon, ONE_MODEL, with_other_model),
    "store_lock": (copies_and_lists, Daemon, {}, with_locked_store),
    "unread_log": (get("/livez"), UnreadDaemon, {}, contextlib.nullcontext),
    "tls_handshakes": (TLS_HANDSHAKES.attack, TlsDaemon, {}, TLS_HANDSHAKES.scene),
}
