#!/usr/bin/env python3
"""The chat of the console in a real browser: streams, branches, tools, files, and texts of hostile models and users.

usage: chat_test.py [CASE...]
"""
import json
import os
import pathlib
import re
import shutil
import tempfile
import unittest

import console_case
from console_case import picture

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = pathlib.Path(os.environ.get("QUIRE_FIXTURES", ROOT.parent / "shared/fixtures"))
VISION = (FIXTURES.with_name(FIXTURES.name + "-2") / "vision/gemma3_vl").resolve()

HOSTILE = """<script>window.hit = 1</script><img src=x onerror="window.hit = 1"> [link](javascript:window.hit=1)
![picture](http://127.0.0.1:9/x.png) <a href="javascript:window.hit=1">a</a> <iframe srcdoc="<script>parent.hit=1</script>">
<svg onload="window.hit=1"></svg> \u001b[31mred\u001b[0m [data](data:text/html,<script>hit</script>)

```js
</code><script>window.hit = 1</script>
```
"""


class Chat(console_case.ConsoleCase):
    def test_a_chat_streams_and_shows_its_figures(self):
        page = self.fresh_chat()
        self.set_option(page, "max_tokens", 24)
        self.say(page, "Hello, who are you?")
        self.answered(page, 1)
        figures = page.run("document.querySelector('.message.assistant .figures').textContent")
        self.assertRegex(figures, r"^24 tokens · [\d.]+ tokens/s · first token after .* prompt tokens from cache")
        self.say(page, "And what can you do?")
        self.answered(page, 2)
        figures = page.run("[...document.querySelectorAll('.message.assistant .figures')].at(-1).textContent")
        cached, of = [int(part.replace(",", "")) for part in figures.split(" prompt")[0].split(" · ")[-1].split(" of ")]
        self.assertGreater(cached, 0)
        self.assertLess(cached, of)
        picture(page, "chat")
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
        self.set_option(page, "seed", 1)
        # The bundled model is done in a moment: the page gets the begin of each answer, and never its end.
        page.run("""(() => {
            const real = window.fetch;
            window.fetch = async (path, options) => {
              const response = await real(path, options);
              if (path !== "/v1/chat/completions") return response;
              let left = 4000;
              return new Response(new ReadableStream({async start(out) {
                options.signal.addEventListener("abort", () => out.error(new DOMException("stopped", "AbortError")));
                const reader = response.body.getReader();
                for (let chunk = await reader.read(); !chunk.done; chunk = await reader.read()) {
                  if (left > 0) out.enqueue(chunk.value.slice(0, left));
                  left -= chunk.value.length;
                }
              }}));
            };
        })()""")
        self.say(page, "Tell me a very long story.")
        page.wait("document.querySelector('[aria-busy=true] .text')?.innerText.length > 20")
        page.click("button", "Stop")
        self.answered(page, 1)
        stopped = page.run("document.querySelector('.message.assistant .text').innerText")
        self.assertGreater(len(stopped), 20)
        self.say(page, "Another very long story.")
        page.wait("[...document.querySelectorAll('[aria-busy=true] .text')].at(-1)?.innerText.length > 20")
        page.wait("import('/ui/storage.mjs').then(({allConversations}) => allConversations()).then((all) => "
                  "all.some(({nodes}) => Object.values(nodes).some((node) => node.pending && node.content.length > 10)))", "a saved part")
        page.reload()
        page.wait("document.querySelectorAll('.message.assistant').length === 2")
        self.assertEqual(stopped, page.run("document.querySelector('.message.assistant .text').innerText"))
        self.assertIn("cut off", page.run("[...document.querySelectorAll('.message.assistant')].at(-1).innerText"))
        self.assertGreater(page.run("[...document.querySelectorAll('.message.assistant .text')].at(-1).innerText.length"), 10)
        self.quiet(page)

    # Answers of /api/tags wait until the page calls release().
    LATE_MODELS = """(() => {
        const real = window.fetch;
        const late = new Promise((done) => { window.release = done; });
        window.fetch = (path, options) => path === "/api/tags" ? late.then(() => real(path, options)).finally(() => { window.came = true; })
          : real(path, options);
    })()"""

    def test_what_is_typed_stays_while_the_models_are_asked_for(self):
        page = self.open()
        page.run(self.LATE_MODELS)
        page.click("button", "New conversation")
        page.fill("#prompt", "typed at once")
        page.run("release()")
        page.wait("window.came")
        page.run("new Promise((done) => setTimeout(done))")
        self.assertEqual("typed at once", page.run("document.querySelector('#prompt').value"))
        self.quiet(page)

    def test_a_view_whose_data_come_late_does_not_replace_the_next_one(self):
        page = self.open("models")
        page.run(self.LATE_MODELS)
        page.run("location.hash = '#/chat'")
        page.wait("document.querySelector('main.view-chat')")
        page.run("location.hash = '#/keys'")
        page.wait("document.querySelector('main.view-keys')?.innerText.includes('without keys')")
        shown = page.run("document.querySelector('main').innerText")
        page.run("release()")
        page.wait("window.came")
        page.run("new Promise((done) => setTimeout(done, 100))")
        self.assertEqual(shown, page.run("document.querySelector('main').innerText"))
        self.quiet(page)

    def test_any_message_can_be_edited(self):
        page = self.fresh_chat()
        self.set_option(page, "max_tokens", 12)
        self.say(page, "What is a boat?")
        self.answered(page, 1)
        page.click(".message.assistant button", "Edit")
        page.fill(".message.assistant textarea", "A boat is a **small ship**.")
        page.click("button", "Keep as a new branch")
        page.wait("document.querySelector('.message.assistant .branches')?.innerText.includes('2 / 2')")
        self.assertEqual("small ship", page.run("document.querySelector('.message.assistant .text strong').innerText"))
        self.say(page, "And a sail?")
        self.answered(page, 2)
        self.assertRegex(page.run("document.querySelector('.tree summary').textContent"), "2 branches")
        self.quiet(page)

    def test_tools_are_called_until_all_results_are_there(self):
        page = self.fresh_chat()
        page.run("for (const one of document.querySelectorAll('.panel details')) one.open = true")
        page.fill("#setting-tools", json.dumps([{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]))
        # The bundled model calls no tools: this server's answer has two calls, in pieces, and then a text.
        page.run("""(() => {
            const real = window.fetch;
            window.sent = [];
            const call = (index, id, name, text) => ({tool_calls: [{index, ...(id && {id, type: "function"}), function: {...(name && {name}), arguments: text}}]});
            const calls = [call(0, "a", "weather", '{"city":'), call(0, "", "", '"Oslo"}'), call(1, "b", "weather", '{"city":"Rome"}')];
            window.fetch = (path, options) => {
              if (path !== "/v1/chat/completions") return real(path, options);
              sent.push(JSON.parse(options.body));
              const deltas = sent.length === 1 ? calls : [{content: "Both are sunny."}];
              const events = [...deltas.map((delta) => ({index: 0, delta, finish_reason: null})), {index: 0, delta: {}, finish_reason: "stop"}]
                .map((choice) => `data: ${JSON.stringify({choices: [choice]})}\\n\\n`);
              return Promise.resolve(new Response(new Blob([...events, "data: [DONE]\\n\\n"]), {headers: {"Content-Type": "text/event-stream"}}));
            };
        })()""")
        self.say(page, "How is the weather?")
        page.wait("document.querySelectorAll('.call textarea').length === 2")
        self.assertEqual(['{"city":"Oslo"}', '{"city":"Rome"}'], page.run("[...document.querySelectorAll('.call pre')].map((one) => one.innerText)"))
        page.fill(".call textarea", "sun in Oslo")
        page.click(".call button", "Send result")
        page.wait("document.querySelectorAll('.call textarea').length === 1")
        self.assertEqual(1, page.run("sent.length"))
        page.fill(".call textarea", "sun in Rome")
        page.click(".call button", "Send result")
        page.wait("[...document.querySelectorAll('.message.assistant .text')].at(-1).innerText.includes('Both are sunny.')")
        asked = page.run("sent[1]")
        self.assertEqual("weather", asked["tools"][0]["function"]["name"])
        self.assertEqual([("user", None), ("assistant", None), ("tool", "a"), ("tool", "b")],
                         [(one["role"], one.get("tool_call_id")) for one in asked["messages"]])
        self.assertEqual(["a", "b"], [one["id"] for one in asked["messages"][1]["tool_calls"]])
        page.fill("#setting-tools", "")
        self.quiet(page)

    def test_text_files_are_attached_and_conversations_exported_and_imported(self):
        folder = tempfile.TemporaryDirectory(prefix="quire-files-")
        self.addCleanup(folder.cleanup)
        notes, binary, saved = [pathlib.Path(folder.name) / name for name in ("notes.md", "binary.txt", "saved.json")]
        notes.write_text("Bring apples.")
        binary.write_bytes(b"a\0b")
        page = self.fresh_chat()
        self.set_option(page, "max_tokens", 8)
        page.upload(".composer input[type=file]", notes, binary)
        page.wait("document.querySelector('.note.error')?.textContent.includes('binary.txt is not a text file')")
        self.assertEqual("notes.md", page.wait("document.querySelector('.chip .file-name')?.textContent"))
        sent = self.sent_bodies(page)
        self.say(page, "Read this.")
        self.answered(page, 1)
        self.assertEqual("File notes.md:\n```\nBring apples.\n```\n\nRead this.", sent()[0]["messages"][-1]["content"])
        self.assertEqual("Read this.", page.run("document.querySelector('.message.user .text').innerText"))
        self.assertEqual("notes.md", page.run("document.querySelector('.message.user .file summary').childNodes[1].textContent"))
        page.run("window.exported = []; const url = URL.createObjectURL; URL.createObjectURL = (blob) => { exported.push(blob); return url.call(URL, blob); }")
        page.click(".side button", "Export")
        saved.write_text(page.run("exported[0].text()"))
        page.point_at(".conversations li.current")
        page.click(".conversations li.current .remove")
        page.wait("!document.querySelector('.conversations').innerText.includes('Read this.')")
        saved_whole = saved.read_text()
        saved.write_text(saved_whole[:-10])
        page.upload(".side input[type=file]", saved)
        page.wait("[...document.querySelectorAll('.note.error')].some((one) => one.textContent.includes('JSON'))")
        saved.write_text(saved_whole)
        page.upload(".side input[type=file]", saved)
        page.click(".conversations button", "Read this.")
        page.wait("document.querySelector('.message.user .file pre')?.textContent.includes('Bring apples.')")
        self.quiet(page)

    def test_code_is_highlighted_and_copied(self):
        page = self.open()
        copied = page.run("""import('/ui/markdown.mjs').then(({formatted}) => {
            navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); };
            const box = document.createElement('div');
            box.append(formatted('Look:\\n\\n```js\\nconst a = 1 < 2;\\n```'));
            document.body.append(box);
            box.querySelector('.code .copy').click();
            return [window.copied, box.querySelector('.hljs-keyword')?.textContent];
        })""")
        self.assertEqual(["const a = 1 < 2;\n", "const"], copied)
        self.quiet(page)

    def test_what_cannot_be_drawn_is_shown_as_it_is(self):
        page = self.open()
        shown = page.run("""import('/ui/markdown.mjs').then(({formatted}) =>
            ['>'.repeat(2000), '- '.repeat(2000) + 'a', '|a'.repeat(100) + '\\n' + '|-'.repeat(100) + '\\n' + '|\\n'.repeat(5000), '> ok'].map(
                (text) => { const box = document.createElement('div'); box.append(formatted(text)); return box.firstElementChild.tagName; }))""")
        self.assertEqual(["PRE", "PRE", "PRE", "BLOCKQUOTE"], shown)
        self.quiet(page)

    def test_a_conversation_that_cannot_be_drawn_is_deleted(self):
        page = self.fresh_chat()
        page.run("""Promise.all([import('/ui/conversation.mjs'), import('/ui/storage.mjs')]).then(([{newConversation, addMessage}, storage]) => {
            const one = newConversation('m');
            one.title = 'Many marks';
            addMessage(one, null, {role: 'user', content: 'a'});
            addMessage(one, one.leaf, {role: 'assistant', content: '>'.repeat(2000)});
            return storage.saveConversation(one);
        })""")
        page.reload()
        page.click(".conversations button", "Many marks")
        self.assertEqual(2000, page.wait("document.querySelector('.message.assistant .text pre')?.innerText.length"))
        page.point_at(".conversations li.current")
        page.click(".conversations li.current .remove")
        page.wait("!document.querySelector('.conversations').innerText.includes('Many marks')")
        self.assertEqual(0, page.run("import('/ui/storage.mjs').then(({allConversations}) => allConversations()).then((all) => "
                                     "all.filter(({title}) => title === 'Many marks').length)"))
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
        # The answer of a server that the model controls, in the real view: escapes, markup in every delta, a
        # line of 1 MB.
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
        self.assertEqual(0, page.run("document.querySelectorAll('.message script, .message img, .message iframe, .message .text svg').length"))
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
        said = page.wait("!document.querySelector('[aria-busy=true]') && document.querySelector('.message.assistant .mark.failed p, .message.assistant .figures, .note.error')?.textContent")
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
        self.assertRegex(page.run("document.querySelector('.message.assistant .text').innerText"), r'^\{\s*"yes"\s*:\s*(true|false)\s*\}$')
        page.fill("#setting-schema", "")
        self.quiet(page)

    @unittest.skipUnless(VISION.exists(), "QUIRE_FIXTURES has no model that sees")
    def test_a_pasted_screenshot_is_seen(self):
        folder = pathlib.Path(self.daemon.folder.name)
        (folder / "seer").mkdir()
        for file in VISION.iterdir():
            if file.suffix != ".gguf":
                shutil.copy(file, folder / "seer")
        (folder / "Modelfile").write_text(f"FROM {folder / 'seer'}\nPARAMETER temperature 0\n")
        self.assertEqual(0, self.daemon.cli("create", "seer", "-f", folder / "Modelfile").returncode)
        self.addCleanup(self.daemon.cli, "rm", "seer")
        page = self.fresh_chat()
        page.fill("select[aria-label=Model]", "seer:latest")
        self.set_option(page, "max_tokens", 8)
        sent = self.sent_bodies(page)
        screenshots = [page.send("Page.captureScreenshot", format=format)["data"] for format in ("png", "jpeg", "webp")]
        for format, data in zip(("png", "jpeg", "webp"), screenshots):
            page.run(f"""(() => {{
                const data = new DataTransfer(), bytes = Uint8Array.from(atob({json.dumps(data)}), (one) => one.charCodeAt(0));
                data.items.add(new File([bytes], 'screenshot.{format}', {{type: 'image/{format}'}}));
                document.getElementById('prompt').dispatchEvent(new ClipboardEvent('paste', {{bubbles: true, cancelable: true, clipboardData: data}}));
            }})()""")
        page.wait("document.querySelectorAll('.chip .thumbnail').length === 3")
        self.say(page, "What is on the page?")
        self.answered(page, 1)
        self.assertEqual(screenshots, [part["image_url"]["url"].partition(",")[2] for part in sent()[0]["messages"][0]["content"][:-1]])
        figures = page.run("document.querySelector('.message.assistant .figures').innerText")
        self.say(page, "And below?")
        self.answered(page, 2)
        tokens = [re.search(r"(\d+) of (\d+) prompt tokens from cache", one).groups()
                  for one in (figures, page.run("document.querySelectorAll('.message.assistant .figures')[1].innerText"))]
        self.assertGreater(int(tokens[1][0]), int(tokens[0][1]) - 10, "the screenshots are not read again")
        self.assertEqual([], page.run("[...document.querySelectorAll('.mark.failed')].map((one) => one.innerText)"))
        self.quiet(page)

    def test_conversations_are_exported_and_checked_when_imported(self):
        page = self.open()
        page.run("""import('/ui/conversation.mjs').then(({newConversation, addMessage, checkConversation}) => {
            const good = newConversation('m');
            addMessage(good, null, {role: 'user', content: 'a'});
            checkConversation(JSON.parse(JSON.stringify(good)));
            const breaks = [(one) => { one.nodes[one.leaf].parent = 'none'; },
              (one) => { one.nodes[one.leaf].images = [{name: 'a', url: 'https://elsewhere/a.png'}]; },
              (one) => { one.nodes[one.leaf].images = [{name: 'a', url: 'data:image/svg+xml;base64,AA=='}]; }];
            for (const spoil of breaks) {
              const bad = JSON.parse(JSON.stringify(good));
              spoil(bad);
              try { checkConversation(bad); } catch { continue; }
              throw new Error('a broken conversation was taken');
            }
            return true;
        })""")


if __name__ == "__main__":
    console_case.main()
