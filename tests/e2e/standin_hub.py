"""A hub of model repositories on loopback, as Hugging Face and ModelScope answer: lists of files with their hashes, files by
name, large ones from another host under a signed address, ranges (hub_files_test.py).
"""
import hashlib
import json
import pathlib
import ssl
import struct
import subprocess
import threading
import urllib.parse

from evil_registry import LoopbackServer, QuietHandler

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of GGUF's types of values
STRING, ARRAY = 8, 9
LARGE = (".gguf", ".safetensors")


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def split_gguf(data, name):
    """{file name: bytes} of the file in two parts, as gguf-split writes them."""
    def integer(at, form="<Q"):
        return struct.unpack_from(form, data, at)[0]

    def past_value(kind, at):
        if kind == STRING:
            return at + 8 + integer(at)
        if kind != ARRAY:
            return at + SIZES[kind]
        inner, count, at = integer(at, "<I"), integer(at + 4), at + 12
        for _ in range(count):
            at = past_value(inner, at)
        return at

    def key(text, kind, form, value):
        return struct.pack("<Q", len(text)) + text.encode() + struct.pack("<I", kind) + struct.pack(form, value)

    tensors, pairs, at = integer(8), integer(16), 24
    for _ in range(pairs):
        at += 8 + integer(at)
        at = past_value(integer(at, "<I"), at + 4)
    metadata, infos = data[24:at], []
    for _ in range(tensors):
        begin = at
        at += 8 + integer(at)
        at += 4 + 8 * integer(at, "<I") + 4
        infos.append((data[begin:at], integer(at)))
        at += 8
    weights = data[at + -at % 32:]
    ends = [offset for _, offset in infos[1:]] + [len(weights)]
    assert sorted(ends) == ends
    parts = {}
    for number, mine in enumerate((range(tensors // 2), range(tensors // 2, tensors))):
        head, body = b"", b""
        for i in mine:
            head += infos[i][0] + struct.pack("<Q", len(body))
            piece = weights[infos[i][1]:ends[i]]
            body += piece + b"\0" * (-len(piece) % 32)
        own = key("split.no", 2, "<H", number) + key("split.count", 2, "<H", 2) + key("split.tensors.count", 5, "<i", tensors)
        start = struct.pack("<4sIQQ", b"GGUF", 3, len(mine), 3 + (0 if number else pairs)) + (b"" if number else metadata) + own
        whole = start + head
        parts[f"{name}-{number + 1:05}-of-00002.gguf"] = whole + b"\0" * (-len(whole) % 32) + body
    return parts


class Hub(LoopbackServer):
    """`repositories`: {"OWNER/REPO": {path: bytes}}. `token`: what the lists and files need, unless it is None. Large files come
    from the host localhost, their lists and small files from 127.0.0.1 (or `host`)."""

    def __init__(self, repositories=None, token=None, certificate=None, host="127.0.0.1"):
        super().__init__(Handler, host)
        self.repositories = repositories or {}
        self.token = token
        self.wrong = set()  # paths whose bytes are not those of the list
        self.stop_after = None  # bytes of a large file after which its connection stands still
        self.released = threading.Event()
        self.scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate[1], certificate[0])
            self.socket = context.wrap_socket(self.socket, server_side=True)
            self.scheme = "https"
        self.host = f"{host}:{self.server_address[1]}"
        self.endpoint = f"{self.scheme}://{self.host}"
        self.elsewhere = f"{self.scheme}://localhost:{self.server_address[1]}"

    def data(self, digest):
        for files in self.repositories.values():
            for data in files.values():
                if sha256(data) == digest:
                    return data
        return None

    def paths(self, begin):
        return [path for _, path, _ in self.seen if path.startswith(begin)]

    def __exit__(self, *exception):
        self.released.set()
        super().__exit__(*exception)


class Handler(QuietHandler):
    def write(self, body):
        stop = self.server.stop_after
        if stop is not None and stop < len(body):
            self.wfile.write(body[:stop])
            self.wfile.flush()
            self.server.released.wait()
            self.close_connection = True
        else:
            self.wfile.write(body)

    def do_GET(self):
        self.server.seen.append((self.command, self.path, dict(self.headers)))
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        path = urllib.parse.unquote(url.path)
        if path.startswith("/signed/"):
            return self.signed(path, query)
        if self.server.token and self.headers.get("Authorization") != f"Bearer {self.server.token}":
            return self.reply(401, b'{"error":"Invalid credentials"}')
        if path == "/api/models":
            return self.reply(200, json.dumps(self.found(query)).encode())
        parts = path.strip("/").split("/")
        if parts[:3] == ["api", "v1", "models"]:
            return self.modelscope("/".join(parts[3:5]), parts[5:], query)
        if parts[:2] == ["api", "models"]:
            return self.tree("/".join(parts[2:4]), parts[4:], query)
        if parts[2:4] == ["resolve", "main"]:
            return self.file("/".join(parts[:2]), "/".join(parts[4:]))
        return self.reply(404)

    do_HEAD = do_GET

    def found(self, query):
        rows = []
        for name, files in self.server.repositories.items():
            tags = ["gguf"] if any(path.endswith(".gguf") for path in files) else ["safetensors"]
            if query.get("search", "").lower() in name.lower() and query.get("filter", tags[0]) in tags:
                rows.append({"id": name, "downloads": 1234, "likes": 5, "tags": tags, "lastModified": "2026-01-02T03:04:05.000Z"})
        return rows

    def tree(self, repository, rest, query):
        files = self.server.repositories.get(repository)
        if files is None or rest != ["tree", "main"]:
            return self.reply(404, b'{"error":"Repository not found"}')
        rows = []
        for path, data in files.items():
            row = {"type": "file", "oid": git_hash(data), "size": len(data), "path": path}
            if path.endswith(LARGE):
                row |= {"oid": "0" * 40, "lfs": {"oid": sha256(data), "size": len(data), "pointerSize": 134}}
            rows.append(row)
        rows.append({"type": "directory", "oid": "1" * 40, "size": 0, "path": "folder"})
        half = len(rows) // 2  # two pages
        if "cursor" in query:
            return self.reply(200, json.dumps(rows[half:]).encode())
        link = f'<{self.server.endpoint}/api/models/{repository}/tree/main?recursive=true&cursor=2>; rel="next"'
        return self.reply(200, json.dumps(rows[:half]).encode(), Link=link)

    def modelscope(self, repository, rest, query):
        files = self.server.repositories.get(repository)
        if files is None:
            return self.reply(404, b'{"Code":10010205001,"Message":"not found","Success":false}')
        if rest == ["repo", "files"]:
            rows = [{"Name": pathlib.PurePath(path).name, "Path": path, "Type": "blob", "Size": len(data), "Sha256": sha256(data),
                     "IsLFS": path.endswith(LARGE)} for path, data in files.items()]
            return self.reply(200, json.dumps({"Code": 200, "Success": True, "Data": {"Files": rows}}).encode())
        return self.file(repository, query.get("FilePath", ""))

    def file(self, repository, path):
        data = self.server.repositories.get(repository, {}).get(path)
        if data is None:
            return self.reply(404)
        if not path.endswith(LARGE):
            return self.reply(200, data[::-1] if path in self.server.wrong else data)
        place = f"{self.server.elsewhere}/signed/{sha256(data)}?Signature=s%2F1&wrong={int(path in self.server.wrong)}"
        return self.reply(302, Location=place, X_Linked_Etag=f'"{sha256(data)}"', X_Linked_Size=str(len(data)))

    def signed(self, path, query):
        data = self.server.data(path.rpartition("/")[2])
        if data is None or query.get("Signature") != "s/1":
            return self.reply(403)
        data = data[::-1] if query["wrong"] == "1" else data
        begin = int(self.headers.get("Range", "bytes=0-")[6:-1])
        if begin:
            return self.reply(206, data[begin:], Content_Range=f"bytes {begin}-{len(data) - 1}/{len(data)}")
        return self.reply(200, data)


def make_certificate(folder, *hosts):
    """(key, certificate) for addresses, which is its own authority."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    names = ",".join(f"{'DNS' if host.isalpha() else 'IP'}:{host}" for host in hosts)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out", certificate,
                    "-subj", "/CN=hub", "-addext", f"subjectAltName={names}"], check=True, capture_output=True)
    return key, certificate
