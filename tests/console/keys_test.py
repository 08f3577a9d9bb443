#!/usr/bin/env python3
"""The console of a server with API keys, and of one that goes away and returns, in a real browser.

usage: keys_test.py [CASE...]
"""
import hashlib
import http.client
import json
import pathlib
import tempfile
import unittest

import console_case
from console_case import browsers, harness, picture


class Guarded(unittest.TestCase):
    def test_keys_are_made_and_their_prefixes_kept_apart(self):
        folder = tempfile.TemporaryDirectory(prefix="quire-keys-")
        self.addCleanup(folder.cleanup)
        keys = pathlib.Path(folder.name) / "keys"
        root, alice = "r" * 43, "a" * 43
        keys.write_text("".join(f"{name} {role} sha256:{hashlib.sha256(secret.encode()).hexdigest()}\n"
                                for name, role, secret in (("root", "admin", root), ("alice", "inference", alice))))
        keys.chmod(0o600)
        with harness.Daemon({"QUIRE_KEYS": str(keys)}) as daemon, browsers.Browser() as browser:
            def ask(secret, text):
                return daemon.request("POST", "/api/chat", {"model": harness.MODEL, "stream": False, "options": {"num_predict": 2},
                                                            "messages": [{"role": "user", "content": text}]}, {"Authorization": f"Bearer {secret}"})

            ask(alice, "The swordfish is mine.")
            ask(root, "The starfish is mine.")

            def watch(secret):
                connection = daemon.connect()
                connection.request("GET", "/quire/now", headers={"Authorization": f"Bearer {secret}", "Accept": "text/event-stream"})
                return connection.getresponse()

            def open_as(secret, view):
                page = browser.page(f"http://127.0.0.1:{daemon.port}/ui/")
                page.run(f"sessionStorage.setItem('quire.key', {json.dumps(secret)})")
                page.open(f"http://127.0.0.1:{daemon.port}/ui/?{view}#/{view}")
                return page

            page = open_as(root, "keys")
            page.wait("document.querySelectorAll('tbody tr').length === 2")
            self.assertRegex(page.run("document.querySelector('tbody').innerText"), r"alice\s+inference\s+1\s+no limit\s+no limit\s+1\s+(now|.*ago)")
            page.fill("#key-name", "bob")
            page.fill("#key-parallel", "2")
            page.click("button", "Create a key")
            secret = page.wait("document.querySelector('.card pre')?.textContent")
            page.wait("document.querySelectorAll('tbody tr').length === 3")
            page.run("document.querySelector('.card pre').textContent = 'quire-' + '0123456789abcdef'.repeat(4)")
            picture(page, "keys")
            page.size(390, 800)
            self.assertLessEqual(page.run("document.documentElement.scrollWidth"), 390)
            picture(page, "phone-keys-admin")
            self.assertNotIn(secret, keys.read_text())
            self.assertEqual(200, ask(secret, "Hello.").status)
            page.fill("#key-name", "bob")
            page.click("button", "Create a key")
            page.wait("document.querySelector('.note.error')?.textContent.includes('bob')")

            # A deleted key is out, also with what it has begun; one's own is not offered.
            self.assertEqual("this page's key", page.run("document.querySelector('tbody tr .actions').innerText"))
            with watch(secret) as stream:
                self.assertTrue(stream.read(1))
                page.click("button[aria-label='Delete the key of bob']")
                page.wait("document.querySelectorAll('tbody tr').length === 2")
                self.assertIn("bob", page.dialogs[0])
                with self.assertRaises((http.client.HTTPException, OSError)):
                    while stream.read(1):
                        pass
            self.assertEqual(401, ask(secret, "Hello again.").status)
            self.assertNotIn("bob", keys.read_text())

            # A key of the role inference reads the store.
            page = open_as(alice, "models")
            page.wait("document.querySelector('.reads-only') && document.querySelector('main tbody tr')")
            self.assertEqual(["Details", "Load"], page.run("[...document.querySelectorAll('main button')].filter((one) => one.offsetParent).map((one) => "
                                                           "one.textContent.replace('Unload', 'Load'))"))
            self.assertIn("role admin", page.run("document.querySelector('main').innerText"))

            # An admin sees where others' prefixes are, and none of their words; another key sees nothing of
            # them.
            shown = """[...document.querySelectorAll('.tree-picture .node')].map((node) => {
                node.dispatchEvent(new Event('click'));
                return node.getAttribute('aria-label') + document.querySelector('.cache-view .card').innerText;
            }).join(' ')"""
            page = open_as(root, "cache")
            page.wait("document.querySelectorAll('.tree-picture').length === 3")
            text = page.run(shown)
            self.assertIn("starfish", text)
            self.assertNotIn("swordfish", text + page.run("document.documentElement.outerHTML"))
            page = open_as(alice, "cache")
            page.wait("document.querySelector('.tree-picture .node')")
            text = page.run(shown)
            self.assertIn("swordfish", text)
            html = page.run("document.documentElement.outerHTML")
            self.assertNotIn("starfish", text + html)
            self.assertNotIn("other keys", html)
            page = open_as(alice, "now")
            page.wait("document.querySelector('main').innerText.includes('granted')")
            page = open_as(alice, "keys")
            page.wait("document.querySelector('main').innerText.includes('role admin')")

    def test_the_key_is_asked_for_once_and_a_wrong_one_again(self):
        folder = tempfile.TemporaryDirectory(prefix="quire-keys-")
        self.addCleanup(folder.cleanup)
        secret = "q" * 43
        keys = pathlib.Path(folder.name) / "keys"
        keys.write_text(f"alice inference sha256:{hashlib.sha256(secret.encode()).hexdigest()}\n")
        keys.chmod(0o600)
        with harness.Daemon({"QUIRE_KEYS": str(keys)}) as daemon, browsers.Browser() as browser:
            page = browser.page(f"http://127.0.0.1:{daemon.port}/ui/")
            for attempt in ("wrong", secret):
                page.wait("document.querySelector('dialog').open")
                page.fill("#key", attempt)
                page.click("dialog button")
                page.wait("!document.querySelector('dialog').open || document.body.innerText.includes('did not accept')")
            page.wait("document.querySelector('.composer option')?.value === 'quire-demo:latest'")
            page.reload()
            page.wait("document.querySelector('.composer option')?.value === 'quire-demo:latest'")
            self.assertFalse(page.run("document.querySelector('dialog').open"))

    def test_a_lost_server_is_told_and_its_return_too(self):
        with harness.Daemon() as daemon, browsers.Browser() as browser:
            page = browser.page(f"http://127.0.0.1:{daemon.port}/ui/#/now")
            page.wait("document.querySelector('#server').textContent.match(/^[0-9]/)")
            daemon.stop()
            page.wait("document.querySelector('#server').className === 'error'")
            daemon.environment["OLLAMA_HOST"] = f"127.0.0.1:{daemon.port}"
            daemon.log_path.unlink()
            daemon.start()
            page.wait("document.querySelector('#server').className === ''")


if __name__ == "__main__":
    console_case.main()
