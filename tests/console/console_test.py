#!/usr/bin/env python3
"""The views of what the server does, of its caches and of its models in a real browser, and the page as a whole.

usage: console_test.py [CASE...]
"""
import contextlib
import http.client
import json
import shutil
import socket
import threading
import time
import unittest

import console_case
from console_case import axe_core, browsers, harness, picture, violations


SHOWN = "document.querySelector('main .message, main details, main .node, main td, main code')"  # some content of a view


class Console(console_case.ConsoleCase):
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
        now = {"viewer": {"key": "", "admin": True}, "memory_budget_bytes": 22e9, "models": [model], "loading": [{"name": "gemma3:4b", "fraction": 0.4, "stage": "mapping weights"}],
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
        picture(page, "now")
        self.quiet(page)

    def test_now_shows_how_far_a_prefill_is(self):
        # Long prompts that have nothing in common, four at a time, until the page has shown one on its way.
        # Beside a stream a prompt is computed in several steps, however quick the machine is.
        shown = threading.Event()
        connections = []

        def ask(first, body):
            number = first
            while not shown.is_set():
                number += 1
                words = " ".join(f"{number}{word}" for word in range(700))
                connection = self.daemon.connect()
                connections.append(connection)
                try:
                    connection.request("POST", "/api/generate", json.dumps({"model": harness.MODEL, "prompt": words, "raw": True, **body}))
                    connection.getresponse().read()
                except (OSError, http.client.HTTPException):
                    return  # the test is done

        one_token = {"stream": False, "options": {"num_predict": 1}}
        endless = {"prompt": "Hello", "options": {"num_predict": 2000, "temperature": 1.5, "seed": 1}}
        askers = [threading.Thread(target=ask, args=(100 * n, one_token)) for n in range(10, 50, 10)]
        askers.append(threading.Thread(target=ask, args=(9000, endless)))
        page = self.open("now")
        page.run("""window.seen = []; new MutationObserver(() => {
            for (const one of document.querySelectorAll('.card progress')) seen.push([one.value, one.max, one.parentNode.innerText]);
        }).observe(document.querySelector('main'), {childList: true, subtree: true})""")
        for asker in askers:
            asker.start()
        try:
            value, most, text = page.wait("seen.find(([value, , text]) => value > 1 && text.includes('left'))")
        finally:
            shown.set()
            for connection in connections:
                with contextlib.suppress(OSError, AttributeError):  # closed, or not yet open
                    connection.sock.shutdown(socket.SHUT_RDWR)
            for asker in askers:
                asker.join()
        self.assertLess(0, value)
        self.assertLess(value, most)
        self.assertEqual(f"{value:,} of {most:,} prompt tokens, about ", text[:text.index("about ") + 6])
        self.assertRegex(text, r"about [\d.]+ (ms|s|min.*) left$")
        print(f"console: {text}")
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

        # The view has room for 512 prefixes; the long prompts of other cases leave more than that.
        self.daemon.request("POST", "/api/generate", {"model": harness.MODEL, "keep_alive": 0})
        deadline = time.monotonic() + 60
        while self.daemon.get("/api/ps").json["models"] and time.monotonic() < deadline:
            time.sleep(0.05)
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
        picture(page, "cache")
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
        picture(page, "models")
        demo = "[...document.querySelectorAll('tr')].find((one) => one.innerText.includes('quire-demo:latest'))"
        for _ in range(2):  # from what it is to the other, and back
            loaded = f"[...{demo}.querySelectorAll('button')].find((one) => /oad$/.test(one.textContent) && !one.disabled)"
            before = page.wait(f"{loaded}?.textContent")
            page.run(f"{loaded}.click()")
            page.wait(f"{loaded}?.textContent === '{'Load' if before == 'Unload' else 'Unload'}'")
        page.run(f"[...{row}.querySelectorAll('button')].find((one) => one.textContent === 'Delete').click()")
        page.wait(f"!{row}")
        self.assertIn("Delete spare:latest", page.dialogs[0])
        page.fill("input[aria-label='Name of the model to pull']", "127.0.0.1:9/none/none")
        page.click("button", "Pull")
        page.wait("document.querySelector('.note.error')")
        self.quiet(page)

    def have_something_to_show(self):
        page = self.fresh_chat()
        self.set_option(page, "max_tokens", 24)
        self.say(page, "Hello, who are you?")
        self.answered(page, 1)
        page.close()

    def test_a_phone_shows_all_of_it(self):
        self.have_something_to_show()
        for view in ("chat", "now", "cache", "models", "keys"):
            page = self.open(view, width=390, height=800)
            page.wait(SHOWN)
            self.assertLessEqual(page.run("document.documentElement.scrollWidth"), 390, view)
            picture(page, f"phone-{view}")
            page.close()

    def test_axe_finds_nothing(self):
        axe = axe_core()
        if axe is None:
            self.skipTest("axe-core cannot be had from npm")
        self.have_something_to_show()
        for view in ("chat", "now", "cache", "models", "keys"):
            for theme, width in (("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)):
                page = self.open(view, width=width)
                page.theme(theme)
                page.wait(SHOWN)
                self.assertEqual([], violations(page, axe), f"{view} {theme} {width}")
                page.close()  # a browser has six connections to one server

    def test_the_page_is_small(self):
        page = self.open()
        sizes = page.run("performance.getEntriesByType('resource').concat(performance.getEntriesByType('navigation'))"
                         ".filter((one) => one.name.includes('/ui/')).map((one) => one.encodedBodySize)")
        paint = page.wait("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
        print(f"console: {len(sizes)} requests, {sum(sizes)} bytes, first paint after {paint:.0f} ms")
        self.assertLessEqual(sum(sizes), 160000)


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


if __name__ == "__main__":
    console_case.main()
