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

    def test_a_hostile_answer_is_shown_as_text(self):
        page = self.fresh_chat()
        # The answer of a server that the model controls, in the real view: escapes, markup in every delta, a line of 1 MB.
        pieces = [HOSTILE[at:at + 7] for at in range(0, len(HOSTILE), 7)] + ["\u001b]8;;javascript:window.hit=1\u0007link\u001b]8;;\u0007", "x" * (1 << 20)]
        page.run("""(() => {
            const real = window.fetch, pieces = %s;
            window.fetch = (path, options) => {
              if (path !== "/v1/chat/completions") return real(path, options);
              const chunk = (delta, finish) => `data: ${JSON.stringify({choices: [{index: 0, delta, finish_reason: finish}]})}\\n\\n`;
              const events = [...pieces.map((content) => chunk({content, reasoning_content: content.length < 100 ? content : ""}, null)), chunk({}, "stop"), "data: [DONE]\\n\\n"];
              return Promise.resolve(new Response(new Blob(events), {headers: {"Content-Type": "text/event-stream"}}));
            };
        })()""" % json.dumps(pieces))
        self.say(page, "Be hostile.")
        self.answered(page, 1)
        page.wait("document.querySelector('.message.assistant .text').textContent.length > 1 << 20")
        page.run("for (const link of document.querySelectorAll('.message a')) link.click()")
        self.assertIsNone(page.run("window.hit ?? null"))
        self.assertEqual(0, page.run("document.querySelectorAll('.message script, .message img, .message iframe, .message svg').length"))
        self.assertIn("\u001b[31mred", page.run("document.querySelector('.message.assistant .text').textContent"))
        self.assertLessEqual(page.run("document.documentElement.scrollWidth"), 1280)
        self.assertEqual([], [url for url in page.requested if ":9/" in url])
        self.quiet(page)

    def test_a_paste_of_100_kb_is_sent_whole_or_refused_by_name(self):
        page = self.fresh_chat()
        self.set_option(page, "max_tokens", 24)
        page.run("document.getElementById('prompt').focus()")
        page.send("Input.insertText", text="Plenty of text. " * 6400)
        self.assertEqual(102400, page.run("document.getElementById('prompt').value.length"))
        page.press("Enter", 13)
        page.wait("document.querySelector('.message.user .text')?.textContent.length >= 102399")
        said = page.wait("!document.querySelector('[aria-busy=true]') && document.querySelector('.message.assistant .figures, .message.assistant .error, .note.error')?.textContent")
        # The bundled model's context holds 4,096 tokens.
        self.assertRegex(said, "tokens")
        self.assertEqual([], [one for one in page.messages if "400 (Bad Request)" not in one])

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
        self.assertRegex(page.run("document.querySelector('details').innerText"), "(?s)prefill .*decode")
        self.quiet(page)

    def test_now_shows_progress_waits_loads_and_shares(self):
        # A busy server's state, which the bundled model is too quick for.
        model = {"name": "qwen3:8b", "architecture": "qwen3", "context_length": 40960, "resident_bytes": 7.1e9, "memory_bytes": 9.4e9, "weight_bytes": 4.9e9,
                 "cache_bytes": 4e9, "load_ms": 2310, "cache_bytes_used": 2e9, "prefix_bytes": 1.4e9, "prefix_snapshots": 37, "prefix_evictions": 4,
                 "running": 2, "waiting": 1, "steps": 9121, "engine": {"steps": 9121, "step_ms": 182.4, "decoding": 1, "prefilling": 1, "prefill_tokens": 96,
                                                                    "draft_tokens": 3, "building": 0}}
        request = {"model": "qwen3:8b", "path": "/v1/chat/completions", "template_ms": 41, "fetch_ms": 12}
        now = {"memory_budget_bytes": 22e9, "models": [model], "loading": [{"name": "gemma3:4b", "fraction": 0.4, "stage": "mapping weights"}],
               "requests": [
                   request | {"id": "a", "key": "alice", "phase": "decode", "elapsed_ms": 9100, "queue_ms": 180, "first_token_ms": 2400, "prompt_tokens": 1251,
                              "cached_tokens": 1203, "miss": "diverged@1203", "output_tokens": 61, "tokens_per_second": 9.1,
                              "divergence": {"at": 1203, "shared": "You are a helpful assistant.\nToday is ", "prompt": "Monday, 23 November 2026.", "cached": "Sunday, 22 November 2026."}},
                   request | {"id": "b", "key": "bob", "phase": "prefill", "elapsed_ms": 4400, "queue_ms": 150, "prompt_tokens": 6000, "cached_tokens": 0, "miss": "cold",
                              "output_tokens": 0, "prefill": {"computed_tokens": 2100, "prompt_tokens": 6000, "remaining_ms": 7900}},
                   {"id": "c", "key": "bob", "model": "qwen3:8b", "path": "/api/chat", "phase": "queued", "elapsed_ms": 900, "output_tokens": 0, "wait": "prefix"}],
               "recent": [], "others": {"running": 0, "waiting": 0},
               "shares": [{"key": "alice", "weight": 2, "running": 1, "waiting": 0, "virtual_time": 900}, {"key": "bob", "weight": 1, "running": 1, "waiting": 1, "virtual_time": 910}]}
        page = self.browser.page()
        self.addCleanup(page.close)
        page.send("Page.addScriptToEvaluateOnNewDocument", source="""
            const real = window.fetch;
            window.fetch = (path, options) => path !== "/quire/now" ? real(path, options)
              : Promise.resolve(new Response(new ReadableStream({start(out) { out.enqueue(new TextEncoder().encode("data: " + %s + "\\n\\n")); }})));
        """ % json.dumps(json.dumps(now)))
        page.open(f"http://127.0.0.1:{self.daemon.port}/ui/#/now")
        page.wait("document.querySelector('main').innerText.includes('qwen3:8b')")
        text = page.run("document.querySelector('main').innerText")
        for said in ("2,100 of 6,000 prompt tokens, about 7.9 s left", "waiting for another request that computes the same prefix", "gemma3:4b is loading",
                     "40 % mapping weights", "1 stream decoding", "3 draft tokens", "9.1 tokens/s", "A date or a time", "1.4 GB"):
            self.assertIn(said, text)
        self.assertRegex(text, r"(?s)alice\s+2\s+1\s+0\s+67 %.*bob\s+1\s+1\s+1\s+33 %")
        self.picture(page, "now")
        self.quiet(page)

    def test_now_says_where_and_how_a_prompt_left_the_cache(self):
        for day in ("Monday", "Sunday"):
            self.daemon.request("POST", "/api/chat", {"model": harness.MODEL, "stream": False, "options": {"num_predict": 2},
                                                      "messages": [{"role": "user", "content": f"It is {day}. What is to be done?"}]})
        page = self.open("now")
        page.wait("[...document.querySelectorAll('details')].some((one) => one.textContent.includes('Sunday'))")
        page.run("for (const one of document.querySelectorAll('details')) one.open = true")
        found = page.run("[...document.querySelectorAll('details')].find((one) => one.textContent.includes('Sunday')).innerText")
        self.assertIn("A date or a time", found)
        self.assertRegex(found, r"(?s)Prompt\s+.*It is Sunday.*Cached\s+.*It is Monday")
        self.assertRegex(found, "(?s)template .*fetch .*prefill .*decode")
        self.quiet(page)

    def test_the_cache_is_a_tree_whose_splits_show(self):
        def ask(text):
            self.daemon.request("POST", "/api/chat", {"model": harness.MODEL, "stream": False, "options": {"num_predict": 2},
                                                      "messages": [{"role": "user", "content": text}]})

        ask("The first of two prompts that begin alike: about fish.")
        # Another credential is another isolation key: its boxes have no text.
        self.daemon.request("POST", "/api/chat", {"model": harness.MODEL, "stream": False, "options": {"num_predict": 2},
                                                  "messages": [{"role": "user", "content": "The password is swordfish."}]},
                            {"Authorization": "Bearer of-somebody-else"})
        page = self.open("cache")
        page.wait("document.querySelector('.tree-picture .node text')?.textContent")
        page.wait("document.querySelectorAll('.tree-picture').length === 2")
        before = page.run("document.querySelectorAll('.tree-picture .node').length")
        ask("The first of two prompts that begin alike: about boats.")
        page.wait(f"document.querySelectorAll('.tree-picture .node').length > {before}")
        page.wait("[...document.querySelectorAll('.cache-log li')].some((one) => one.textContent.startsWith('Split'))")
        self.assertNotIn("swordfish", page.run("document.documentElement.outerHTML"))
        # By keyboard: the arrows go from box to box, and the chosen one is described.
        page.run("document.querySelector('.tree-picture .node[tabindex=\"0\"]').focus()")
        for key, code in (("Enter", 13), ("ArrowRight", 39)):
            page.press(key, code)
        page.wait("document.querySelector('.cache-view dl')?.innerText.includes('Tokens')")
        page.wait("document.activeElement.getAttribute('aria-pressed') === 'true'")
        self.assertIn("fish", page.run("[...document.querySelectorAll('.tree-picture .node')].map((one) => one.getAttribute('aria-label')).join(' ')"))
        self.picture(page, "cache")
        self.quiet(page)

    def test_changes_of_the_tree_are_told_apart(self):
        page = self.open()
        found = page.run("""import('/ui/cache_tree.mjs').then(({changesBetween, layOut}) => {
            const node = (id, parent, from, to, hits = 0) => ({id, parent, from, to, hits, kv_bytes: 1, window_bytes: 0, state_bytes: 0});
            const one = [node(1, 0, 0, 10)];
            const split = [node(3, 0, 0, 6), node(1, 3, 6, 10), node(2, 3, 6, 9)];
            const merged = [node(1, 0, 0, 10, 1)];
            const kinds = (before, after) => changesBetween(before, after).map(({kind, node}) => `${kind} ${node.id}`).sort();
            const {places, height} = layOut(split);
            return {split: kinds(one, split), merged: kinds(split, merged), used: kinds(one, merged), same: kinds(one, one),
                    heights: [...places.values()].map((place) => place.height / (height / 2))};
        })""")
        self.assertEqual(["added 2", "split 3"], found["split"])
        self.assertEqual(["evicted 2", "merged 1"], found["merged"])
        self.assertEqual(["used 1"], found["used"])
        self.assertEqual([], found["same"])
        self.assertEqual([2, 1, 1], found["heights"])

    def test_a_modelfile_is_read_as_the_command_line_does(self):
        page = self.open()
        modelfile = ('# c\nFROM quire-demo\n\nSYSTEM """two\nlines"""\nPARAMETER temperature 0.5\nPARAMETER stop "a"\nparameter stop b\n'
                     'MESSAGE user hello "there"\nLICENSE MIT')
        read = f"import('/ui/modelfile.mjs').then(({{createBody}}) => createBody('m', {json.dumps(modelfile)}))"
        self.assertEqual({"model": "m", "from": "quire-demo", "system": "two\nlines", "parameters": {"temperature": 0.5, "stop": ["a", "b"]},
                          "messages": [{"role": "user", "content": 'hello "there"'}], "license": ["MIT"]}, page.run(read))
        for text, word in (("SYSTEM a", "no FROM"), ("FROM a\nADAPTER b", "line 2: ADAPTER"), ('FROM a\nSYSTEM "b', "line 2: missing"),
                           ("FROM a\nSYSTEM", "no value")):
            said = page.run(f"import('/ui/modelfile.mjs').then(({{createBody}}) => createBody('m', {json.dumps(text)})).catch((e) => e.message)")
            self.assertIn(word, said)

    def test_a_model_is_created_from_a_modelfile(self):
        page = self.open("models")
        page.run("document.querySelector('details').open = true")
        page.fill("input[aria-label='Name of the new model']", "brief")
        page.fill("textarea[aria-label='Modelfile']", 'FROM quire-demo\nSYSTEM """Be\nbrief."""\nPARAMETER stop a')
        page.click("button", "Create")
        page.wait("[...document.querySelectorAll('th')].some((one) => one.textContent === 'brief:latest')")
        shown = self.daemon.post("/api/show", {"model": "brief"}).json
        self.assertEqual("Be\nbrief.", shown["system"])
        self.assertIn("stop", shown["parameters"])
        self.daemon.request("DELETE", "/api/delete", {"model": "brief"})
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
        for view in ("chat", "now", "cache", "models", "keys"):
            page = self.open(view, width=390, height=800)
            page.run("new Promise((done) => setTimeout(done, 300))")
            self.assertLessEqual(page.run("document.documentElement.scrollWidth"), 390, view)
            self.picture(page, f"phone-{view}")
            page.close()

    def test_axe_finds_nothing_serious(self):
        axe = axe_core()
        if axe is None:
            self.skipTest("axe-core cannot be had from npm")
        self.daemon.request("POST", "/api/chat", {"model": harness.MODEL, "stream": False, "options": {"num_predict": 2},
                                                  "messages": [{"role": "user", "content": "Something for the views to show."}]})
        for view in ("chat", "now", "cache", "models", "keys"):
            for theme in ("light", "dark"):
                page = self.open(view)
                page.theme(theme)
                page.wait("document.querySelectorAll('main button, main h3, main td, main .node, main code').length > 0")
                page.send("Runtime.evaluate", expression=axe)
                found = page.run("axe.run().then(({violations}) => violations.map(({id, impact, nodes}) => "
                                 "`${impact}: ${id}: ${nodes.map((one) => one.html).join(' ')}`))")
                self.assertEqual([], [one for one in found if one.startswith(("serious", "critical"))], f"{view} {theme}")
                print(f"axe-core, {view}, {theme}: {len(found)} lesser findings {found}")
                page.close()  # a browser has six connections to one server

    def test_the_page_is_small(self):
        page = self.open()
        sizes = page.run("performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
                         ".filter((one) => one.name.includes('/ui/')).map((one) => one.encodedBodySize)")
        paint = page.wait("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
        print(f"console: {len(sizes)} requests, {sum(sizes)} bytes, first paint after {paint:.0f} ms")
        self.assertLessEqual(sum(sizes), 250000)


class Pulled(unittest.TestCase):
    @unittest.skipUnless(shutil.which("docker-registry"), "docker-registry is not installed")
    def test_a_model_is_pulled_with_progress(self):
        import registry_test  # its registry, on loopback
        with registry_test.Registry() as registry, harness.Daemon({"QUIRE_REGISTRIES": registry.host}) as daemon, browsers.Browser() as browser:
            name = f"{registry.host}/me/demo:latest"
            daemon.request("POST", "/api/copy", {"source": harness.MODEL, "destination": name})
            pushed = daemon.request("POST", "/api/push", {"model": name, "insecure": True, "stream": False})
            self.assertEqual(200, pushed.status, pushed.text)
            daemon.request("DELETE", "/api/delete", {"model": name})
            page = browser.page(f"http://127.0.0.1:{daemon.port}/ui/#/models")
            page.wait("document.querySelectorAll('main tbody tr').length > 0")
            # Every word of the progress.
            page.run("window.seen = new Set(); new MutationObserver(() => seen.add(document.querySelector('[role=status].row')?.innerText ?? ''))"
                     ".observe(document.querySelector('main'), {childList: true, subtree: true, characterData: true})")
            page.fill("input[aria-label='Name of the model to pull']", name)
            page.run("document.getElementById('pull-insecure').click()")
            page.click("button", "Pull")
            page.wait(f"[...document.querySelectorAll('th')].some((one) => one.textContent.includes('{registry.host}/me/demo'))")
            seen = page.run("[...seen].join('\\n')")
            self.assertIn("pulling manifest", seen)
            self.assertEqual([], page.messages)
            self.assertIn(name, [model["name"] for model in daemon.get("/api/tags").json["models"]])


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
            if pictures := os.environ.get("QUIRE_PICTURES"):
                page.run("document.querySelector('.card pre').textContent = 'quire-' + '0123456789abcdef'.repeat(4)")
                for theme in ("light", "dark"):
                    page.theme(theme)
                    page.run("new Promise((done) => setTimeout(done, 300))")
                    page.picture(pathlib.Path(pictures) / f"keys-{theme}.png")
            self.assertNotIn(secret, keys.read_text())
            self.assertEqual(200, ask(secret, "Hello.").status)
            page.fill("#key-name", "bob")
            page.click("button", "Create a key")
            page.wait("document.querySelector('.note.error')?.textContent.includes('bob')")

            # An admin sees where others' prefixes are, and none of their words; another key sees how many there are.
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
            self.assertIn("other keys: 2 with", html)
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
    if not browsers.available():
        print("SKIPPED: no browser (Debian's package chromium)")
        sys.exit(77)
    unittest.main(verbosity=2)
