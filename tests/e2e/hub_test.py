"""Models of a hub of GGUF repositories: named OWNER/REPO[:QUANT], served by a registry in the OCI form, with the media types and the
config that the hub writes. Against Debian's docker-registry on loopback, and against no network at all.
"""
import hashlib
import http.client
import json
import shutil
import socket
import unittest

import suites
from evil_registry import Evil
from harness import ROOT, Daemon
from registry_test import Registry, statuses

GGUF = ROOT / "packaging/models/quire-demo-Q8_0.gguf"
TEMPLATE = "{{ range .Messages }}{{ .Role }}: {{ .Content }}\n{{ end }}assistant:"
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


def send(registry, method, path, body=b"", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", registry.port, timeout=60)
    connection.request(method, path, body, headers)
    reply = connection.getresponse()
    reply.read()
    connection.close()
    assert reply.status // 100 == 2, (path, reply.status)
    return reply


def upload(registry, repository, data, media_type):
    """A blob, with its entry of a manifest."""
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    place = send(registry, "POST", f"/v2/{repository}/blobs/uploads/").headers["Location"]
    path = place[place.index("/v2/"):]
    send(registry, "PUT", path + ("&" if "?" in path else "?") + f"digest={digest}", data, **{"Content-Length": str(len(data))})
    return {"mediaType": media_type, "digest": digest, "size": len(data)}


def publish(registry, repository, quantization, weights=None):
    """As the hub answers for a repository of GGUF files: a config of Docker's, Ollama's layers, annotations beside them."""
    layer = "application/vnd.ollama.image."
    weights = weights or upload(registry, repository, GGUF.read_bytes(), layer + "model")
    layers = [weights | {"annotations": {"org.opencontainers.image.title": f"demo-{quantization}.gguf"}},
              upload(registry, repository, TEMPLATE.encode(), layer + "template"),
              upload(registry, repository, json.dumps({"stop": ["user:"], "num_ctx": 640}).encode(), layer + "params")]
    config = json.dumps({"model_format": "gguf", "model_family": "qwen3", "model_families": ["qwen3"], "model_type": "5M",
                         "file_type": quantization, "architecture": "amd64", "os": "linux",
                         "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]}}).encode()
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "layers": layers,
                "config": upload(registry, repository, config, "application/vnd.docker.container.image.v1+json")}
    send(registry, "PUT", f"/v2/{repository}/manifests/{quantization}", json.dumps(manifest).encode(), **{"Content-Type": MANIFEST})
    return weights


@unittest.skipUnless(shutil.which("docker-registry"), "docker-registry is not installed")
class Hub(unittest.TestCase):
    def test_a_repository_is_pulled_by_quantization(self):
        with Registry() as registry, Daemon({"QUIRE_REGISTRIES": registry.host}) as daemon:
            weights = publish(registry, "owner/demo-gguf", "latest")
            publish(registry, "owner/demo-gguf", "Q8_0", weights)
            plain, quantized = f"{registry.host}/owner/demo-gguf", f"{registry.host}/owner/demo-gguf:Q8_0"
            ran = daemon.cli("run", "--insecure", quantized, "Hello!")
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertTrue(ran.stdout.strip())
            said = statuses(daemon.post("/api/pull", {"model": plain, "insecure": True}))
            self.assertEqual(said[-1], "success")
            names = {model["name"]: model for model in daemon.get("/api/tags").json["models"]}
            self.assertIn(quantized, names)
            self.assertIn(plain + ":latest", names)
            shown = daemon.post("/api/show", {"model": quantized}).json
            self.assertEqual(shown["template"], TEMPLATE)
            self.assertEqual(shown["context_length"], 640)
            self.assertIn('stop', shown["parameters"])
            checked = daemon.cli("show", "--check", quantized)
            self.assertEqual(checked.returncode, 0, checked.stdout)
            none = daemon.post("/api/pull", {"model": f"{registry.host}/owner/demo-gguf:Q2_K", "insecure": True, "stream": False})
            self.assertEqual(none.status, 404)
            self.assertIn("file does not exist", none.json["error"])


class Requests(unittest.TestCase):
    def test_a_program_names_itself_and_asks_for_both_manifest_forms(self):
        with Evil() as registry, Daemon({"QUIRE_REGISTRIES": "127.0.0.1"}) as daemon:
            registry.give_model(b"A" * 5000)
            daemon.post("/api/pull", {"model": f"{registry.host}/owner/repo:Q4_K_M", "insecure": True, "stream": False})
            method, path, headers = registry.seen[0]
            self.assertEqual((method, path), ("GET", "/v2/owner/repo/manifests/Q4_K_M"))
            self.assertRegex(headers["User-Agent"], r"^quire/\d")
            self.assertIn(MANIFEST, headers["Accept"])
            self.assertIn("application/vnd.oci.image.manifest.v1+json", headers["Accept"])


class NoNetwork(unittest.TestCase):
    """A port where nothing listens stands for a network that is not there."""

    def test_it_is_said_which_host_cannot_be_reached(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))  # and never listens
            host = f"127.0.0.1:{s.getsockname()[1]}"
            with Daemon({"QUIRE_REGISTRIES": host}) as daemon:
                reply = daemon.post("/api/pull", {"model": f"{host}/owner/repo:Q8_0", "insecure": True, "stream": False})
                self.assertEqual(reply.status, 503, reply.text)
                self.assertIn(host, reply.json["error"])
                self.assertIn("cannot be reached", reply.json["error"])
                ran = daemon.cli("run", "--insecure", f"{host}/owner/repo:Q8_0", "Hello!")
                self.assertEqual(ran.returncode, 1)
                self.assertIn("cannot be reached", ran.stderr)
                self.assertEqual(daemon.cli("list").returncode, 0)


if __name__ == "__main__":
    suites.run()
