#!/usr/bin/env python3
"""The console in a real browser, against the real daemon and the bundled model.

usage: console_test.py [CASE...]; QUIRE_PICTURES=DIR writes a picture of each view there
Without Debian's chromium nothing runs: exit code 77.
"""
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import browser as browsers  # noqa: E402
import harness  # noqa: E402

HOSTILE = """<script>window.hit = 1</script><img src=x onerror="window.hit = 1"> [link](javascript:window.hit=1)
![picture](http://127.0.0.1:9/x.png) <a href="javascript:window.hit=1">a</a> <iframe srcdoc="<script>parent.hit=1</script>">
<svg onload="window.hit=1"></svg> \u001b[31mred\u001b[0m [data](data:text/html,<script>hit</script>)

```js
</code><script>window.hit = 1</script>
```
"""


def axe_core():
    """The text of axe-core from npm's registry, or nothing."""
    if not shutil.which("npm"):
        return None
    with tempfile.TemporaryDirectory(prefix="quire-axe-") as folder:
        done = subprocess.run(["npm", "pack", "--silent", "--fetch-retries=0", "axe-core@4.14.1"], cwd=folder, capture_output=True,
                              text=True, timeout=300)
        if done.returncode != 0:
            return None
        with tarfile.open(pathlib.Path(folder) / done.stdout.split()[-1]) as packed:
            return packed.extractfile("package/axe.min.js").read().decode()


class Console(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = harness.Daemon().start()
        cls.browser = browsers.Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        cls.daemon.__exit__(None, None, None)

    def open(self, view="chat", width=1280, height=800):
        page = self.browser.page(width=width, height=height)
        self.addCleanup(page.close)
        page.open(f"http://127.0.0.1:{self.daemon.port}/ui/#/{view}")
        page.wait("document.querySelector('main').children.length > 0")
        return page

    def fresh_chat(self, **size):
        page = self.open(**size)
        page.click("button", "New conversation")
        page.wait("document.querySelector('.empty')")
        return page

    def set_option(self, page, name, value):
        page.run("for (const one of document.querySelectorAll('.panel details')) one.open = true")
        page.fill(f"#option-{name}", str(value))

    def say(self, page, text):
        page.fill("#prompt", text)
        page.run("document.getElementById('prompt').focus()")
        page.press("Enter", 13)

    def answered(self, page, count):
        page.wait(f"document.querySelectorAll('.message.assistant').length === {count} && "
                  "!document.querySelector('[aria-busy=true]')", f"{count} answers")

    def picture(self, page, name):
        if folder := os.environ.get("QUIRE_PICTURES"):
            for theme in ("light", "dark"):
                page.theme(theme)
                page.run("new Promise((done) => setTimeout(done, 300))")
                page.picture(pathlib.Path(folder) / f"{name}-{theme}.png")

    def quiet(self, page):
        """No script failed, nothing was blocked, and nothing was asked of another host."""
        self.assertEqual([], page.messages)
        here = f"http://127.0.0.1:{self.daemon.port}/"
        self.assertEqual([], [url for url in page.requested if not url.startswith((here, "data:", "blob:"))])

    def test_a_chat_streams_and_shows_its_figures(self):
        page = self.fresh_chat()
        self.set_option(page, "max_tokens", 24)
        self.say(page, "Hello, who are you?")
        self.answered(page, 1)
        figures = page.run("document.querySelector('.message.assistant .figures').textContent")
        self.assertRegex(figures, r"prompt tokens from cache · first token after .* tokens/s")
        self.say(page, "And what can you do?")
        self.answered(page, 2)
        figures = page.run("[...document.querySelectorAll('.message.assistant .figures')].at(-1).textContent")
        cached, of = [int(part.replace(",", "")) for part in figures.split(" prompt")[0].split(" of ")]
        self.assertGreater(cached, 0)
        self.assertLess(cached, of)
        self.picture(page, "chat")
        self.quiet(page)

    def test_a_branch_costs_its_new_tokens_and_the_old_one_stays(self):
        page = self.fresh_chat()
        self.set_option(page, "max_tokens", 12)
        self.say(page, "Tell me about the sea and its many kinds of fish, please.")
        self.answered(page, 1)
        first = page.run("document.querySelector('.message.assistant .text').innerText")
        page.click(".message.assistant button", "Regenerate")
        page.wait("document.querySelector('.message.assistant .branches')?.innerText.includes('2 / 2')")
        self.answered(page, 1)
        page.click(".message.user button", "Edit")
        page.fill(".message.user textarea", "Tell me about the sea and its many kinds of boats.")
        page.click("button", "Send as a new branch")
        page.wait("document.querySelector('.message.user .text').innerText.includes('boats')")
        self.answered(page, 1)
        self.assertRegex(page.run("document.querySelector('.tree summary').textContent"), "3 branches")
        page.click(".message.user button[aria-label='Previous branch']")
        page.wait("document.querySelector('.message.user .text').innerText.includes('fish')")
        page.click(".message.assistant button[aria-label='Previous branch']")
        self.assertEqual(first, page.wait("document.querySelector('.message.assistant .text').innerText"))
        self.quiet(page)

    def test_stop_keeps_what_came_and_a_reload_too(self):
        page = self.fresh_chat()
        page.throttle(1500)  # the bundled model is done in a moment
        self.say(page, "Tell me a very long story.")
        page.wait("document.querySelector('[aria-busy=true] .text')?.innerText.length > 20")
        page.click("button", "Stop")
        self.answered(page, 1)
        stopped = page.run("document.querySelector('.message.assistant .text').innerText")
        self.assertGreater(len(stopped), 20)
        self.say(page, "Another very long story.")
        page.wait("[...document.querySelectorAll('[aria-busy=true] .text')].at(-1)?.innerText.length > 20")
        page.run("new Promise((done) => setTimeout(done, 1500))")  # longer than the page waits until it saves again
        page.throttle(-1)
        page.reload()
        page.wait("document.querySelectorAll('.message.assistant').length === 2")
        self.assertIn("cut off", page.run("[...document.querySelectorAll('.message.assistant')].at(-1).innerText"))
        self.assertGreater(page.run("[...document.querySelectorAll('.message.assistant .text')].at(-1).innerText.length"), 10)
        self.quiet(page)

    def test_hostile_text_executes_nothing(self):
        page = self.open()
        result = page.run(f"""import('/ui/markdown.mjs').then(({{formatted}}) => {{
            const box = document.createElement('div');
            box.append(formatted({json.dumps(HOSTILE)}));
            document.body.append(box);
            return new Promise((done) => setTimeout(() => done({{
              hit: window.hit ?? null,
              elements: [...box.querySelectorAll('script, img, iframe, svg, object, embed, form, style, link')].length,
              handlers: [...box.querySelectorAll('*')].flatMap((one) => [...one.attributes])
                .filter(({{name, value}}) => name.startsWith('on') || name === 'srcdoc' || /^(javascript|data):/i.test(value)).length,
            }}), 500));
        }})""")
        self.assertIsNone(result["hit"])
        page.run("for (const link of document.querySelectorAll('main ~ div a')) link.click()")
        self.assertIsNone(page.run("window.hit ?? null"))
        self.assertEqual((0, 0), (result["elements"], result["handlers"]))
        self.assertEqual([], [url for url in page.requested if ":9/" in url])
        self.quiet(page)

    def test_large_texts_do_not_hold_the_page_up(self):
        page = self.fresh_chat()
        took = page.run("""import('/ui/markdown.mjs').then(({formatted}) => {
            const begin = performance.now();
            document.querySelector('.messages').append(formatted('x'.repeat(1 << 20)));
            return performance.now() - begin;
        })""")
        self.assertIsNotNone(took)
        page.fill("#prompt", "y " * 50000)
        self.assertEqual(100000, page.run("document.getElementById('prompt').value.length"))
        # 500 messages, opened as a conversation.
        page.run("""Promise.all([import('/ui/conversation.mjs'), import('/ui/storage.mjs')]).then(async ([tree, storage]) => {
            const conversation = tree.newConversation('quire-demo:latest');
            for (let i = 0; i < 500; ++i) {
              tree.addMessage(conversation, conversation.leaf, {role: i % 2 ? 'assistant' : 'user', content: `message **${i}**`});
            }
            conversation.title = 'five hundred';
            await storage.saveConversation(conversation);
        })""")
        page.reload()
        page.click(".conversations button", "five hundred")
        page.wait("document.querySelectorAll('.message').length === 500")
        self.assertEqual("message 499", page.run("[...document.querySelectorAll('.message .text')].at(-1).innerText.trim()"))
        self.quiet(page)

    def test_an_answer_follows_its_schema(self):
        page = self.fresh_chat()
        page.run("for (const one of document.querySelectorAll('.panel details')) one.open = true")
        page.fill("#setting-schema", "{broken")
        page.wait("[...document.querySelectorAll('.panel .error')].some((one) => one.textContent.includes('not JSON'))")
        page.fill("#setting-schema", json.dumps({"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"],
                                                 "additionalProperties": False}))
        self.say(page, "Yes or no?")
        self.answered(page, 1)
        self.assertRegex(page.run("document.querySelector('.message.assistant .text').innerText"), r'^\{"yes":(true|false)\}$')
        page.fill("#setting-schema", "")
        self.quiet(page)

    def test_conversations_are_exported_and_checked_when_imported(self):
        page = self.open()
        page.run("""import('/ui/conversation.mjs').then(({newConversation, addMessage, checkConversation}) => {
            const good = newConversation('m');
            addMessage(good, null, {role: 'user', content: 'a'});
            checkConversation(JSON.parse(JSON.stringify(good)));
            good.nodes[good.leaf].parent = 'none';
            try { checkConversation(good); } catch { return true; }
            throw new Error('a broken conversation was taken');
        })""")

    def test_now_shows_models_requests_and_why_a_prompt_was_not_cached(self):
        self.daemon.request("POST", "/api/chat", {"model": harness.MODEL, "stream": False, "options": {"num_predict": 8},
                                                  "messages": [{"role": "user", "content": "Now and then."}]})
        page = self.open("now")
        page.wait("document.querySelector('.card h4')?.textContent.includes('quire-demo')")
        page.wait("document.querySelectorAll('details summary').length > 0")
        page.run("document.querySelector('details').open = true")
        self.assertRegex(page.run("document.querySelector('details').innerText"), "prefill .*decode")
        self.picture(page, "now")
        self.quiet(page)

    def test_models_are_listed_described_loaded_and_deleted(self):
        self.daemon.request("POST", "/api/copy", {"source": harness.MODEL, "destination": "spare"})
        page = self.open("models")
        page.wait("document.body.innerText.includes('spare:latest')")
        row = "[...document.querySelectorAll('tr')].find((one) => one.innerText.includes('spare:latest'))"
        page.run(f"[...{row}.querySelectorAll('button')].find((one) => one.textContent === 'Details').click()")
        page.wait("document.querySelector('dl')?.innerText.includes('Loads here')")
        self.assertIn("yes", page.run("document.querySelector('dl').innerText"))
        self.picture(page, "models")
        page.run(f"[...{row}.querySelectorAll('button')].find((one) => one.textContent === 'Delete').click()")
        page.wait(f"!{row}")
        self.assertIn("Delete spare:latest", page.dialogs[0])
        page.fill("input[aria-label='Name of the model to pull']", "127.0.0.1:9/none/none")
        page.click("button", "Pull")
        page.wait("document.querySelector('.note.error')")
        self.quiet(page)

    def test_a_phone_shows_all_of_it(self):
        for view in ("chat", "now", "models"):
            page = self.open(view, width=390, height=800)
            page.run("new Promise((done) => setTimeout(done, 300))")
            self.assertLessEqual(page.run("document.documentElement.scrollWidth"), 390, view)
            self.picture(page, f"phone-{view}")

    def test_axe_finds_nothing_serious(self):
        axe = axe_core()
        if axe is None:
            self.skipTest("axe-core cannot be had from npm")
        for view in ("chat", "now", "models"):
            for theme in ("light", "dark"):
                page = self.open(view)
                page.theme(theme)
                page.wait("document.querySelectorAll('main button, main h3, main td').length > 0")
                page.send("Runtime.evaluate", expression=axe)
                found = page.run("axe.run().then(({violations}) => violations.map(({id, impact, nodes}) => "
                                 "`${impact}: ${id}: ${nodes.map((one) => one.html).join(' ')}`))")
                self.assertEqual([], [one for one in found if one.startswith(("serious", "critical"))], f"{view} {theme}")
                print(f"axe-core, {view}, {theme}: {len(found)} lesser findings {found}")

    def test_the_page_is_small(self):
        page = self.open()
        sizes = page.run("performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
                         ".filter((one) => one.name.includes('/ui/')).map((one) => one.encodedBodySize)")
        print(f"console: {len(sizes)} files, {sum(sizes)} bytes")
        self.assertLessEqual(sum(sizes), 250000)


class Guarded(unittest.TestCase):
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
    if not browsers.available():
        print("SKIPPED: no browser (Debian's package chromium)")
        sys.exit(77)
    unittest.main(verbosity=2)
