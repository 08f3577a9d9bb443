"""What tests of the model store send, and what they look for in it (store_test.py)."""
import hashlib
import json
import pathlib
import struct
import time


def in_shards(directory):
    """The files that are other when its tensors lie in two; what is left out is None."""
    data = (directory / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    names = sorted(header)
    files, places = {"model.safetensors": None}, {}
    for number, part in enumerate((names[::2], names[1::2]), 1):
        file = f"model-{number:05}-of-00002.safetensors"
        infos, body = {}, b""
        for name in part:
            begin, end = header[name]["data_offsets"]
            infos[name] = header[name] | {"data_offsets": [len(body), len(body) + end - begin]}
            body += data[8 + length + begin:8 + length + end]
            places[name] = file
        text = json.dumps(infos).encode()
        files[file] = struct.pack("<Q", len(text)) + text + body
    return files | {"model.safetensors.index.json": json.dumps({"weight_map": places}).encode()}


def upload(daemon, data):
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    if daemon.request("HEAD", f"/api/blobs/{digest}").status == 200:
        return digest
    reply = daemon.request("POST", f"/api/blobs/{digest}", data)
    assert reply.status in (200, 201), reply.text
    return digest


def generate(daemon, model, prompt, **fields):
    body = {"model": model, "prompt": prompt, "stream": False, "options": {"temperature": 0, "num_predict": 8}}
    return daemon.post("/api/generate", body | fields).json


def staging(daemon):
    blobs = pathlib.Path(daemon.environment["OLLAMA_MODELS"]) / "blobs"
    return [path.name for path in blobs.glob(".quire-staging/*")]


def wait_for_no_staging(daemon):
    """A directory that a runner wrote into goes when that is reaped, which may be after the answer."""
    deadline = time.monotonic() + 60
    while (left := staging(daemon)) and time.monotonic() < deadline:
        time.sleep(0.02)
        # What the runner of a killed daemon had, the next upload takes away; this one is refused.
        assert daemon.request("POST", "/api/blobs/sha256:" + "0" * 64, b"x").status == 400
    return left
