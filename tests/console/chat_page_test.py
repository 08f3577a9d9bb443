#!/usr/bin/env python3
"""How the chat looks and behaves: waits, incomplete answers, the list, settings, drawers, dropped files.

The bundled model is done in a moment. Where that is too quick to be seen, the page gets the events of a slow server.

usage: chat_page_test.py [CASE...]
"""
import base64
import json
import pathlib
import tempfile
import unittest

import console_case
from console_case import axe_core, harness, violations

# Chats wait for begin(), event(object) and end() of chats[N]; /quire/now shows what tell(object) says.
SLOW_SERVER = """(() => {
  const real = window.fetch, text = new TextEncoder();
  const event = (object) => text.encode(`data: ${typeof object === "string" ? object : JSON.stringify(object)}\\n\\n`);
  const idle = {viewer: {key: "", admin: true}, models: [], loading: [], requests: [], recent: [], shares: []};
  window.bodies = [];
  window.chats = [];
  let now = null;
  window.tell = (object) => now.enqueue(event({...idle, ...object}));
  const chat = ({body, signal}) => new Promise((resolve, reject) => {
    let out = null;
    bodies.push(JSON.parse(body));
    signal.addEventListener("abort", () => {
      const stopped = new DOMException("stopped", "AbortError");
      if (out) out.error(stopped); else reject(stopped);
    });
    chats.push({
      begin: () => resolve(new Response(new ReadableStream({start(stream) { out = stream; }}))),
      event: (object) => out.enqueue(event(object)),
      say: (content, more = {}) => out.enqueue(event({choices: [{index: 0, delta: {content}, finish_reason: null}], ...more})),
      end: (reason = "stop") => {
        for (const one of [{choices: [{index: 0, delta: {}, finish_reason: reason}]}, "[DONE]"]) out.enqueue(event(one));
        out.close();
      },
    });
  });
  const tags = async (path, options) => {
    const {models} = await (await real(path, options)).json();
    const thinker = {...models[0], name: "thinker:latest", capabilities: ["completion", "thinking"]};
    const seer = {...models[0], name: "seer:latest", capabilities: ["completion", "vision"]};
    return new Response(JSON.stringify({models: [...models, thinker, seer]}));
  };
  window.fetch = (path, options) => {
    if (path === "/v1/chat/completions") return chat(options);
    if (path === "/api/tags") return tags(path, options);
    if (path === "/quire/now") return Promise.resolve(new Response(new ReadableStream({start(stream) { now = stream; tell({}); }})));
    return real(path, options);
  };
})()"""
TIMINGS = {"cache_n": 10, "prompt_n": 30, "predicted_n": 42, "predicted_per_second": 12.34}


class ChatPage(console_case.ConsoleCase):
    def slow_chat(self, width=1280, height=800, mobile=False):
        page = self.browser.page(width=width, height=height)
        self.addCleanup(page.close)
        page.size(width, height, mobile)
        page.send("Storage.clearDataForOrigin", origin=f"http://127.0.0.1:{self.daemon.port}", storageTypes="local_storage,indexeddb")
        page.send("Page.addScriptToEvaluateOnNewDocument", source=SLOW_SERVER)
        page.open(f"http://127.0.0.1:{self.daemon.port}/ui/#/chat")
        page.wait("document.querySelector('.empty')")
        return page

    def answer(self, page, number, text, timings=None):
        page.wait(f"chats.length > {number}")
        page.run(f"chats[{number}].begin(); chats[{number}].say({json.dumps(text)}, {json.dumps({'timings': timings} if timings else {})}); chats[{number}].end()")
        page.wait("!document.querySelector('[aria-busy]')")

    def ask(self, page, text, reply):
        number = page.run("chats.length")
        self.say(page, text)
        self.answer(page, number, reply)

    def test_a_wait_says_what_it_is_for_as_the_terminal_does(self):
        page = self.slow_chat()
        self.say(page, "Read all of it.")
        wait = "document.querySelector('.wait').innerText.trim()"
        page.wait(f"document.querySelector('.wait') && {wait} === 'Waiting for quire-demo'")
        self.assertFalse(page.run("document.querySelector('.wait progress').hasAttribute('value')"))
        page.run("tell({loading: [{name: 'quire-demo:latest', fraction: 0.5, stage: 'building model'}]})")
        page.wait(f"{wait} === 'Loading quire-demo (50%, building model)'")
        self.assertEqual(0.5, page.run("document.querySelector('.wait progress').value"))
        page.wait("document.querySelector('.conversation [role=status]').textContent === 'loading'")
        page.run("chats[0].begin(); chats[0].event({choices: [], prompt_progress: {total: 36013, cache: 0, processed: 0, time_ms: 0}})")
        page.wait(f"{wait} === 'Prefilling 0 of 36,013 tokens (0%)'")
        page.run("chats[0].event({choices: [], prompt_progress: {total: 36013, cache: 2000, processed: 12000, time_ms: 47170}})")
        page.wait(f"{wait} === 'Prefilling 12,000 of 36,013 tokens (33%), 212 tokens/s, 1 min 54 s left'")
        page.run("tell({})")  # a later state of the server says nothing of a prompt that the model has
        page.run(f"chats[0].say('It is', {json.dumps({'timings': TIMINGS})})")
        page.wait("document.querySelector('[aria-busy] .text').innerText === 'It is'")
        self.assertFalse(page.run("document.querySelector('.wait').checkVisibility()"))
        page.wait("document.querySelector('[aria-busy] > .figures').innerText === '42 tokens · 12.3 tokens/s'")
        page.run("chats[0].say(' long.'); chats[0].end()")
        page.wait("!document.querySelector('[aria-busy]')")
        self.assertRegex(page.run("document.querySelector('.message.assistant .figures').innerText"),
                         r"^42 tokens · 12\.3 tokens/s · first token after .* · 10 of 40 prompt tokens from cache$")
        self.assertEqual("quire-demo", page.run("document.querySelector('.message.assistant .name').innerText"))
        self.assertEqual("The answer is complete", page.run("document.querySelector('.conversation [role=status]').textContent"))
        self.quiet(page)

    def test_a_stopped_answer_is_marked_and_not_sent_along_until_it_is_whole(self):
        page = self.slow_chat()
        self.say(page, "One.")
        page.wait("chats.length === 1")
        page.run("chats[0].begin(); chats[0].say('Half an ans')")
        page.wait("document.querySelector('[aria-busy] .text').innerText === 'Half an ans'")
        page.click("button", "Stop")
        page.wait("document.querySelector('.message.incomplete .mark')?.innerText.includes('Stopped.')")
        self.assertEqual("Stopped", page.run("document.querySelector('.conversation [role=status]').textContent"))
        self.ask(page, "Two.", "Second.")
        self.assertEqual([("user", "One."), ("user", "Two.")], [(one["role"], one["content"]) for one in page.run("bodies[1].messages")])
        # Back to the end of the stopped one, by a branch beside the second question.
        page.run("document.querySelectorAll('.message.user')[1].querySelector('.tools button').click()")
        page.fill(".message.edited textarea", "Three.")
        page.click("button", "Send as a new branch")
        self.answer(page, 2, "Third.")
        page.reload()
        page.wait("document.querySelectorAll('.message').length === 4")
        self.assertEqual(1, page.run("document.querySelectorAll('.message.incomplete').length"))
        self.quiet(page)

    def test_a_stopped_answer_is_continued(self):
        page = self.slow_chat()
        self.say(page, "Count.")
        page.wait("chats.length === 1")
        page.run("chats[0].begin(); chats[0].say('One, two')")
        page.wait("document.querySelector('[aria-busy] .text').innerText === 'One, two'")
        page.click("button", "Stop")
        page.click(".mark button", "Continue")
        self.answer(page, 1, ", three.")
        self.assertEqual(["user", "assistant"], [one["role"] for one in page.run("bodies[1].messages")])
        self.assertEqual("One, two, three.", page.run("document.querySelector('.message.assistant .text').innerText"))
        self.ask(page, "On.", "Four.")
        self.assertEqual("One, two, three.", page.run("bodies[2].messages[1].content"))
        self.quiet(page)

    def test_a_failed_answer_says_why_and_is_not_sent_along(self):
        page = self.slow_chat()
        self.say(page, "One.")
        page.wait("chats.length === 1")
        page.run("chats[0].begin(); chats[0].say('Half'); chats[0].event({error: {message: 'the model was unloaded'}})")
        page.wait("document.querySelector('.mark.failed[role=alert]')?.innerText.includes('the model was unloaded')")
        page.click(".mark button", "Try again")
        self.answer(page, 1, "Whole.")
        self.assertEqual(["user"], [one["role"] for one in page.run("bodies[1].messages")])
        self.assertIn("2 / 2", page.run("document.querySelector('.message.assistant .branches').innerText"))
        self.ask(page, "Two.", "Second.")
        self.assertEqual(["One.", "Whole.", "Two."], [one["content"] for one in page.run("bodies[2].messages")])
        self.quiet(page)

    def test_a_model_that_is_gone_stays_named_and_its_error_is_shown(self):
        self.daemon.request("POST", "/api/copy", {"source": harness.MODEL, "destination": "spare"})
        page = self.fresh_chat()
        self.set_option(page, "max_tokens", 8)
        page.fill("select[aria-label=Model]", "spare:latest")
        self.say(page, "Hello?")
        self.answered(page, 1)
        self.assertEqual("spare", page.run("document.querySelector('.message.assistant .name').innerText"))
        self.daemon.request("DELETE", "/api/delete", {"model": "spare"})
        self.say(page, "Still there?")
        page.wait("document.querySelector('.mark.failed')?.innerText.includes('not found')")
        page.reload()
        page.click(".conversations .title", "Hello?")
        page.wait("document.querySelector('select[aria-label=Model]')?.selectedOptions[0].innerText === 'spare (not on this server)'")

    def test_reasoning_is_offered_by_models_that_can_think(self):
        page = self.slow_chat()
        shown = "document.querySelector('#think').checkVisibility()"
        self.assertFalse(page.run(shown))
        page.fill("select[aria-label=Model]", "thinker:latest")
        page.wait(shown)
        page.fill("#think", "high")
        self.say(page, "Think.")
        page.wait("chats.length === 1")
        page.run("chats[0].begin(); chats[0].event({choices: [{index: 0, delta: {reasoning_content: 'Well.'}, finish_reason: null}]})")
        page.wait("document.querySelector('[aria-busy] .reasoning').open")
        page.run("chats[0].say('Done.')")
        page.wait("!document.querySelector('[aria-busy] .reasoning').open")
        page.run("chats[0].end()")
        page.wait("!document.querySelector('[aria-busy]')")
        self.assertEqual("thinker", page.run("document.querySelector('.message.assistant .name').innerText"))
        page.fill("select[aria-label=Model]", "quire-demo:latest")
        self.assertFalse(page.run(shown))
        self.ask(page, "Again.", "Yes.")
        self.assertFalse(page.run("document.querySelector('.message.assistant .reasoning').open"))
        self.assertEqual(["high", None], page.run("bodies.map((one) => one.reasoning_effort ?? null)"))
        self.assertEqual(["thinker", "quire-demo"], page.run("[...document.querySelectorAll('.message.assistant .name')].map((one) => one.innerText)"))
        self.quiet(page)

    def test_lines_are_readable_and_buttons_show_when_they_are_needed(self):
        page = self.slow_chat(width=1900)
        text = "The keeper of the lighthouse wrote the wind and the tide into the book, every day of the year. " * 10
        self.ask(page, "Tell me.", text)
        self.ask(page, "And then?", "Nothing.")
        # Characters of the lines of a paragraph but its last.
        lines = page.run("""(() => {
            const node = document.querySelector('.message.assistant .text p').firstChild, range = document.createRange(), counts = new Map();
            for (let i = 0; i < node.length; ++i) {
              range.setStart(node, i);
              range.setEnd(node, i + 1);
              const top = Math.round(range.getBoundingClientRect().top);
              counts.set(top, (counts.get(top) ?? 0) + 1);
            }
            return [...counts.values()].slice(0, -1);
        })()""")
        self.assertTrue(60 <= sum(lines) / len(lines) <= 80, lines)
        opacity = "getComputedStyle(document.querySelector('.message.user .tools')).opacity"
        page.point_at(".chat-head")
        page.wait(f"{opacity} === '0'")
        page.point_at(".message.user")
        page.wait(f"{opacity} === '1'")
        page.point_at(".chat-head")
        page.wait(f"{opacity} === '0'")
        page.run("document.querySelector('.message.user .tools button').focus()")
        page.wait(f"{opacity} === '1'")
        self.quiet(page)

    def titles(self, page):
        return page.run("[...document.querySelectorAll('.conversations .title')].map((one) => one.innerText)")

    def test_conversations_are_searched_and_renamed(self):
        page = self.slow_chat()
        self.ask(page, "About whales", "They are **large** animals.")
        page.click("button", "New conversation")
        self.ask(page, "About ants", "They are small animals.")
        self.assertEqual(["About ants", "About whales"], self.titles(page))
        for words, found in (("large animals", ["About whales"]), ("ANTS", ["About ants"]), ("animals", ["About ants", "About whales"]), ("bees", [])):
            page.fill(".search input", words)
            self.assertEqual(found, self.titles(page), words)
        self.assertIn("No conversation has these words", page.run("document.querySelector('.conversations').innerText"))
        page.fill(".search input", "")
        for key, code, title in (("Escape", 27, "About ants"), ("Enter", 13, "Insects")):
            page.point_at(".chat-head")
            page.run("document.activeElement.blur()")
            self.assertFalse(page.run("document.querySelector('.conversations .edit').checkVisibility()"))
            page.point_at(".conversations li")
            page.click(".conversations button", "Rename About ants")
            page.run("document.activeElement.value = ''")
            page.send("Input.insertText", text="Insects")
            page.press(key, code)
            page.wait(f"!document.querySelector('.rename') && document.querySelector('.conversations .title').innerText === '{title}'")
        self.assertEqual("Insects", page.run("document.querySelector('.chat-title').innerText"))
        page.reload()
        page.wait("document.querySelectorAll('.conversations .title').length === 2")
        self.assertEqual(["Insects", "About whales"], self.titles(page))
        self.quiet(page)

    def test_an_answer_goes_on_while_another_conversation_is_read(self):
        page = self.slow_chat()
        self.ask(page, "First", "Yes.")
        page.click("button", "New conversation")
        self.say(page, "Second")
        page.wait("chats.length === 2")
        page.run("chats[1].begin(); chats[1].say('Half')")
        page.click(".conversations .title", "First")
        page.wait("document.querySelector('.chat-title').innerText === 'First'")
        self.assertEqual(1, page.run("document.querySelectorAll('.conversations .running').length"))
        self.ask(page, "More", "Of course.")
        page.run("chats[1].say(' and half'); chats[1].end()")
        page.wait("!document.querySelector('.conversations .running')")
        page.click(".conversations .title", "Second")
        page.wait("document.querySelector('.message.assistant .text')?.innerText === 'Half and half'")
        # One that is deleted while it is answered stays deleted.
        self.say(page, "Third")
        page.wait("chats.length === 4")
        page.point_at(".conversations li.current")
        page.click(".conversations li.current .remove")
        page.wait("document.querySelectorAll('.conversations .title').length === 1")
        page.reload()
        page.wait("document.querySelectorAll('.conversations .title').length > 0")
        self.assertEqual(["First"], self.titles(page))
        self.quiet(page)

    def test_settings_belong_to_their_conversation(self):
        page = self.slow_chat()
        page.click(".settings-button")
        page.wait("document.querySelector('.panel').checkVisibility()")
        self.set_option(page, "temperature", "0.3")
        page.fill("#system", "Be brief.")
        self.ask(page, "One", "Yes.")
        self.assertEqual("Settings (2 set)", page.run("document.querySelector('.settings-button').textContent"))
        page.click("button", "New conversation")
        self.assertTrue(page.run("document.querySelector('.panel').checkVisibility()"))
        self.assertEqual(["", ""], page.run("[document.querySelector('#system').value, document.querySelector('#option-temperature').value]"))
        self.ask(page, "Two", "No.")
        page.reload()
        page.click(".conversations .title", "One")
        page.wait("document.querySelector('#system')?.value === 'Be brief.'")
        self.ask(page, "Three", "So.")
        sent = [(one.get("temperature"), one["messages"][0]["role"]) for one in page.run("bodies")]
        self.assertEqual([(0.3, "system")], sent)  # those of before the reload are gone
        page.click(".settings-button")
        page.click(".panel button", "Reset all")
        self.assertEqual(["", "Settings"], page.run("[document.querySelector('#system').value, document.querySelector('.settings-button').textContent]"))
        self.quiet(page)

    def test_files_are_dropped_on_the_chat(self):
        page = self.slow_chat()
        page.run("""(() => {
            const drop = new DataTransfer();
            drop.items.add(new File(['Bring ```apples```.'], 'notes.md', {type: 'text/markdown'}));
            drop.items.add(new File([new Uint8Array([0x63, 0x61, 0x66, 0xe9])], 'latin.txt', {type: 'text/plain'}));
            drop.items.add(new File(['x'], 'photo.png', {type: 'image/png'}));
            window.drag = (type) => document.querySelector('.messages').dispatchEvent(new DragEvent(type, {bubbles: true, cancelable: true, dataTransfer: drop}));
        })()""")
        page.run("drag('dragenter')")
        self.assertTrue(page.run("document.querySelector('.drop').checkVisibility()"))
        self.assertFalse(page.run("drag('dragover')"), "the page takes it")
        self.assertFalse(page.run("drag('drop')"), "the browser does not open it")
        self.assertFalse(page.run("document.querySelector('.drop').checkVisibility()"))
        page.wait("document.querySelector('.note.error')?.innerText.includes('photo.png is an image')")
        self.assertEqual(["notes.md", "latin.txt"], page.run("[...document.querySelectorAll('.chip .file-name')].map((one) => one.innerText)"))
        page.click("button", "Send")
        page.wait("bodies.length === 1")
        self.assertEqual("File notes.md:\n````\nBring ```apples```.\n````\n\nFile latin.txt:\n```\ncaf\u00e9\n```", page.run("bodies[0].messages[0].content"))
        self.assertEqual("notes.md", page.run("document.querySelector('.chat-title').innerText"))
        self.quiet(page)

    def test_images_are_pasted_dropped_and_chosen_and_sent_again(self):
        page = self.slow_chat()
        page.fill("select[aria-label=Model]", "seer:latest")
        folder = tempfile.TemporaryDirectory(prefix="quire-pictures-")
        self.addCleanup(folder.cleanup)
        chosen = pathlib.Path(folder.name) / "chosen.png"
        # A drawing as the file of a screenshot, and one of a kind that models cannot read.
        drawn = page.run("""(async () => {
            window.draw = (color, kind, name) => new Promise((done) => {
              const canvas = new OffscreenCanvas(8, 6), paper = canvas.getContext('2d');
              paper.fillStyle = color;
              paper.fillRect(0, 0, 8, 6);
              canvas.convertToBlob({type: kind}).then((blob) => done(new File([blob], name, {type: kind})));
            });
            const bytes = new Uint8Array(await (await draw('red', 'image/png', 'x')).arrayBuffer());
            return btoa(String.fromCharCode(...bytes));
        })()""")
        chosen.write_bytes(base64.b64decode(drawn))
        page.run("""(async () => {
            const data = new DataTransfer();
            data.items.add(await draw('blue', 'image/jpeg', 'pasted.jpg'));
            document.getElementById('prompt').dispatchEvent(new ClipboardEvent('paste', {bubbles: true, cancelable: true, clipboardData: data}));
        })()""")
        page.wait("document.querySelectorAll('.chip .thumbnail').length === 1")
        # A GIF: 1x1, as old as the format.
        page.run("""(() => {
            const gif = Uint8Array.from(atob('R0lGODlhAQABAIAAAP8AAAAAACwAAAAAAQABAAACAkQBADs='), (one) => one.charCodeAt(0));
            const drop = new DataTransfer();
            drop.items.add(new File([gif], 'old.gif', {type: 'image/gif'}));
            drop.items.add(new File(['no image'], 'broken.gif', {type: 'image/gif'}));
            document.querySelector('.messages').dispatchEvent(new DragEvent('drop', {bubbles: true, cancelable: true, dataTransfer: drop}));
        })()""")
        page.wait("document.querySelector('.note.error')?.innerText.includes('broken.gif is not an image')")
        page.upload(".composer input[type=file]", chosen)
        page.wait("document.querySelectorAll('.chip .thumbnail').length === 3")
        self.assertEqual(["pasted.jpg", "old.gif", "chosen.png"], page.run("[...document.querySelectorAll('.chip .file-name')].map((one) => one.innerText)"))
        self.assertEqual([8, 1, 8], page.run("[...document.querySelectorAll('.chip img')].map((one) => one.naturalWidth)"))
        axe = axe_core()
        found = violations(page, axe) if axe else []
        self.ask(page, "What are they?", "Colors.")
        content = page.run("bodies[0].messages[0].content")
        self.assertEqual(["image_url", "image_url", "image_url", "text"], [part["type"] for part in content])
        self.assertTrue(content[0]["image_url"]["url"].startswith("data:image/jpeg;base64,"))
        self.assertTrue(content[1]["image_url"]["url"].startswith("data:image/png;base64,"), "the GIF is a PNG now")
        self.assertEqual("data:image/png;base64," + drawn, content[2]["image_url"]["url"])
        self.assertEqual("What are they?", content[3]["text"])
        page.reload()
        page.wait("document.querySelectorAll('.message.user .picture img').length === 3")
        page.click(".picture")
        self.assertEqual("true", page.run("document.querySelector('.picture.whole').getAttribute('aria-expanded')"))
        self.assertEqual([], found + (violations(page, axe) if axe else []))
        self.ask(page, "And now?", "The same.")
        self.assertEqual(content, page.run("bodies[0].messages[0].content"), "sent again, after a reload")
        page.run("document.querySelector('.message.user .tools button').click()")
        page.fill(".message.edited textarea", "Which?")
        page.click("button", "Send as a new branch")
        self.answer(page, 1, "Red.")
        self.assertEqual(content[:3], page.run("bodies[1].messages[0].content").copy()[:3])
        self.quiet(page)

    def test_on_a_phone_list_and_settings_are_drawers(self):
        page = self.slow_chat(width=390, height=844, mobile=True)
        page.fill("#prompt", "Hello")
        page.press("Enter", 13)
        self.assertEqual("Hello\n", page.run("document.querySelector('#prompt').value"))
        page.click("button", "Send")
        self.answer(page, 0, "Yes.")
        box = page.run("(({width, height}) => [width, height])(document.querySelector('.conversation').getBoundingClientRect())")
        self.assertEqual([390, 844], box)
        self.assertLessEqual(page.run("document.documentElement.scrollWidth"), 390)
        self.assertEqual("1", page.run("getComputedStyle(document.querySelector('.message.user .tools')).opacity"))  # nothing hovers
        for button, panel in (("Conversations", ".side"), ("Settings", ".panel")):
            shown = f"document.querySelector('{panel}').checkVisibility()"
            self.assertFalse(page.run(shown))
            page.click(".chat-head button", button)
            self.assertTrue(page.run(shown))
            self.assertTrue(page.run(f"document.querySelector('{panel}').contains(document.activeElement)"))
            self.assertTrue(page.run("document.querySelector('.conversation').inert"))
            page.press("Escape", 27)
            self.assertFalse(page.run(shown))
            self.assertEqual(button, page.run("document.activeElement.textContent"))
            page.click(".chat-head button", button)
            page.run("document.querySelector('.scrim').click()")
            self.assertFalse(page.run(shown))
        page.click(".chat-head button", "Conversations")
        page.click(".side button", "New conversation")
        page.wait("document.querySelector('.empty')")
        self.assertFalse(page.run("document.querySelector('.side').checkVisibility()"))
        # Turned on its side the tablet has room for the list beside the chat.
        page.size(1100, 800, mobile=True)
        page.wait("document.querySelector('.side').checkVisibility() && !document.querySelector('.conversation').inert")
        self.quiet(page)

    def test_axe_finds_nothing_in_any_state(self):
        axe = axe_core()
        if axe is None:
            self.skipTest("axe-core cannot be had from npm")
        for width in (1280, 390):
            page = self.slow_chat(width=width, mobile=width < 400)
            found = {}

            def check(state):
                for theme in ("light", "dark"):
                    page.theme(theme)
                    page.run("new Promise((done) => setTimeout(done, 250))")  # animations
                    found[f"{state} {theme} {width}"] = violations(page, axe)

            check("empty")
            self.ask(page, "One", "Yes: `code`.\n\n```js\nconst a = 1;\n```")
            self.say(page, "Two")
            page.wait("chats.length === 2")
            page.run("tell({loading: [{name: 'quire-demo:latest', fraction: 0.5, stage: 'building model'}]})")
            page.wait("document.querySelector('.wait')?.innerText.includes('50%')")
            check("loading")
            page.run("chats[1].begin(); chats[1].say('Half')")
            page.wait("document.querySelector('[aria-busy] .text')?.innerText === 'Half'")
            check("answering")
            page.click("button", "Stop")
            page.wait("document.querySelector('.mark')")
            check("stopped")
            page.click(".mark button", "Try again")
            page.wait("chats.length === 3")
            page.run("chats[2].begin(); chats[2].event({error: {message: 'no memory'}})")
            page.wait("document.querySelector('.mark.failed')")
            page.run("document.querySelector('.tree').open = true")
            check("failed, branches")
            page.click(".message.user button", "Edit")
            check("edited")
            page.click(".settings-button")
            page.run("for (const one of document.querySelectorAll('.panel details')) one.open = true")
            check("settings")
            page.press("Escape", 27)
            if width < 400:
                page.click(".chat-head button", "Conversations")
            page.run("document.querySelector('.conversations .edit').click()")
            check("list, renamed")
            self.assertEqual({}, {state: one for state, one in found.items() if one})
            print(f"axe-core, width {width}: {len(found)} states, 0 violations")
            page.close()


if __name__ == "__main__":
    console_case.main()
