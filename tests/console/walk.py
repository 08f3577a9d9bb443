#!/usr/bin/env python3
"""Walks through the chat with a real model and takes a picture of each step, on a desktop and on a phone.

usage: walk.py MODEL.gguf DIRECTORY

The model must be slow enough that its load and a prefill of some thousand tokens are seen. DIRECTORY gets
console-walk-desktop.png and console-walk-phone.png, each with all steps, and a picture of each step.
"""
import base64
import json
import pathlib
import sys
import tempfile
import time

import console_case
from console_case import browsers, harness

BOOK = "\n".join(f"Day {day}: wind from the {'north' if day % 3 else 'west'}, {day % 7 + 1} ships passed, the lamp burned {day % 5 + 6} hours."
                 for day in range(1, 140))
BUSY = "document.querySelector('[aria-busy]')"


class Walk:
    def __init__(self, page, folder, device, model):
        self.page, self.folder, self.device, self.model = page, folder, device, model
        self.steps = []

    def take(self, what):
        self.page.run("new Promise((done) => setTimeout(done, 250))")  # animations
        path = self.folder / f"{self.device}-{len(self.steps) + 1:02}-{what.split(':')[0].replace(' ', '-')}.png"
        self.page.picture(path)
        self.steps.append((what, path))

    def drop_book(self):
        self.page.run(f"""(() => {{
            const data = new DataTransfer();
            data.items.add(new File([{json.dumps(BOOK)}], "lighthouse.txt", {{type: "text/plain"}}));
            const chat = document.querySelector(".conversation");
            for (const type of ["dragenter", "drop"]) chat.dispatchEvent(new DragEvent(type, {{bubbles: true, cancelable: true, dataTransfer: data}}));
        }})()""")
        self.page.wait("document.querySelector('.chip')")

    def idle(self):
        self.page.wait(f"!{BUSY}")

    def go(self):
        page = self.page
        page.wait("document.querySelector('.empty') && document.querySelector('select[aria-label=Model]').value")
        page.fill("select[aria-label=Model]", f"{self.model}:latest")
        self.drop_book()
        page.fill("#prompt", "This is the log of a lighthouse. What does it record? Then write a Python function that counts its days.")
        self.take("compose: a dropped file, and the question")
        page.click("button", "Send")
        page.wait("document.querySelector('.wait')?.innerText.includes('Loading')")
        self.take("load: the stage and how far it is")
        page.wait("/ left/.test(document.querySelector('.wait')?.innerText)")
        page.run("new Promise((done) => setTimeout(done, 4000))")
        self.take("prefill: tokens, rate, time left")
        page.wait(f"{BUSY}?.querySelector('.text').innerText.length > 60")
        self.take("answer: formatted while it streams, with its rate")
        page.click("button", "Stop")
        self.idle()
        self.take("stop: marked, not sent along, can be continued")
        page.click(".mark button", "Continue")
        page.wait(BUSY)
        self.idle()
        page.run("document.querySelector('.messages').scrollTop = 0")
        page.click(".message.user button", "Edit")
        page.fill(".message.edited textarea", "This is the log of a lighthouse. Name the three things that it records.")
        self.take("edit: a message, in its place")
        page.click("button", "Send as a new branch")
        page.wait("document.querySelector('.message.user .text').innerText.includes('three things')")
        self.idle()
        page.run("document.querySelector('.tree').open = true; document.querySelector('.messages').scrollTop = 0")
        self.take("branch: both are kept, the prompt comes from the cache")
        page.fill("#option-temperature", "0.7")
        page.fill("#system", "You answer in one short sentence.")
        page.run("for (const one of document.querySelectorAll('.panel details')) one.open = one.innerText.startsWith('Sampling')")
        if self.device == "phone":
            page.click(".chat-head button", "Conversations")
            self.take("list: a drawer")
            page.press("Escape", 27)
        page.run("document.querySelector('.settings-button').click()")
        self.take("settings: of this conversation")


# All steps of a walk in one picture.
def sheet(browser, steps, columns, width, out):
    boxes = "".join(f"<figure><figcaption>{number}. {what}</figcaption><img src='data:image/png;base64,"
                    f"{base64.b64encode(path.read_bytes()).decode()}'></figure>" for number, (what, path) in enumerate(steps, 1))
    page = browser.page(width=columns * (width + 16) + 16)
    page.run("document.open(); document.write(%s); document.close()" % json.dumps(
        f"<style>body {{ margin: 8px; display: grid; grid-template-columns: repeat({columns}, {width}px); gap: 16px; font: 14px sans-serif; background: #fff }}"
        f"figure {{ margin: 0 }} figcaption {{ padding: 4px 0 }} img {{ width: {width - 2}px; border: 1px solid #ccc; display: block }}</style>{boxes}"))
    page.wait("[...document.images].every((one) => one.complete)")
    page.size(columns * (width + 16) + 16, page.run("document.documentElement.scrollHeight"))
    page.picture(out)
    page.close()


def main(model, folder):
    folder.mkdir(parents=True, exist_ok=True)
    with harness.Daemon() as daemon, browsers.Browser() as browser, tempfile.NamedTemporaryFile("w", suffix=".modelfile") as recipe:
        recipe.write(f"FROM {pathlib.Path(model).resolve()}\nPARAMETER temperature 0\nPARAMETER num_predict 160\n")
        recipe.flush()
        name = pathlib.Path(model).stem
        made = daemon.cli("create", name, "-f", recipe.name)
        assert made.returncode == 0, made.stderr
        for device, size, columns, shown in (("desktop", (1280, 800), 2, 640), ("phone", (390, 844), 5, 260)):
            while daemon.post("/api/generate", {"model": name, "keep_alive": 0}) and daemon.get("/api/ps").json["models"]:
                time.sleep(0.1)
            page = browser.page()
            page.size(*size, mobile=device == "phone")
            page.theme("light")
            page.send("Storage.clearDataForOrigin", origin=f"http://127.0.0.1:{daemon.port}", storageTypes="local_storage,indexeddb")
            page.open(f"http://127.0.0.1:{daemon.port}/ui/#/chat")
            page.send("Page.bringToFront")
            walk = Walk(page, folder, device, name)
            walk.go()
            assert page.messages == [], page.messages
            page.close()
            sheet(browser, walk.steps, columns, shown, folder / f"console-walk-{device}.png")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
