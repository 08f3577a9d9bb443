"""Headless Chromium through the DevTools protocol over a pipe: pages, scripts, keys, pictures.

Needs Debian's chromium; available() says whether it is there.
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

TIMEOUT_S = 120  # of one command or condition; generous, since test machines are busy


def available():
    return shutil.which("chromium") is not None


class Page:
    def __init__(self, browser, session):
        self.browser = browser
        self.session = session
        self.messages = []  # of the console, and exceptions
        self.dialogs = []
        self.requested = []  # URLs

    def send(self, method, **parameters):
        return self.browser.send(method, self.session, **parameters)

    def run(self, expression):
        """The value of a JavaScript expression, awaited."""
        answer = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise AssertionError(details.get("exception", {}).get("description") or details["text"])
        return answer["result"].get("value")

    def wait(self, expression, what=None):
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            value = self.run(expression)
            if value not in (None, False, "", 0):  # an element is {}
                return value
            if time.monotonic() > deadline:
                raise AssertionError(f"waited in vain for {what or expression}; the page says: {self.run('document.body.innerText')}")
            time.sleep(0.05)

    def open(self, url):
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def reload(self):
        self.run("window.old = true")
        self.send("Page.reload")
        self.wait("!window.old && document.readyState === 'complete'")

    def click(self, selector, text=None):
        find = f"[...document.querySelectorAll({json.dumps(selector)})].find((one) => one.offsetParent !== null && !one.disabled"
        find += f" && one.textContent.trim() === {json.dumps(text)})" if text else ")"
        self.wait(f"Boolean({find})", f"{selector} {text or ''}")
        self.run(f"{find}.click()")

    def fill(self, selector, text):
        """Sets a field as typing does, and says so."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.wait(f"Boolean({element})")
        self.run(f"{{const one = {element}; one.focus(); one.value = {json.dumps(text)};"
                 "for (const name of ['input', 'change']) one.dispatchEvent(new Event(name, {bubbles: true}));}")

    def upload(self, selector, *paths):
        """Chooses files, as the file dialog does."""
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        node = self.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.send("DOM.setFileInputFiles", nodeId=node, files=[str(path) for path in paths])

    def press(self, key, code):
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                      **({"text": "\r"} if key == "Enter" and kind == "keyDown" else {}))

    def point_at(self, selector):
        """Moves the mouse to the middle of an element."""
        self.send("Page.bringToFront")
        element = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{element}.scrollIntoView({{block: 'nearest'}})")
        x, y = self.run(f"(({{x, y, width, height}}) => [x + width / 2, y + height / 2])({element}.getBoundingClientRect())")
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def size(self, width, height, mobile=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        self.send("Emulation.setTouchEmulationEnabled", enabled=mobile)

    def theme(self, name):
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def picture(self, path):
        data = self.send("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as out:
            out.write(base64.b64decode(data))

    def close(self):
        if self.browser.pages.pop(self.session, None) is None:
            return  # closed before
        self.browser.send("Target.closeTarget", targetId=self.target)


class Browser:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="quire-browser-")
        to_browser, self.out = os.pipe()
        self.incoming, from_browser = os.pipe()
        command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions",
                   "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
                   f"--user-data-dir={self.folder.name}", "--remote-debugging-pipe", "about:blank"]

        def place_pipes():
            # The protocol's descriptors are 3 (commands) and 4 (answers).
            spare = [os.dup(to_browser), os.dup(from_browser)]
            os.dup2(spare[0], 3)
            os.dup2(spare[1], 4)

        self.process = subprocess.Popen(command, preexec_fn=place_pipes, close_fds=False, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        env=os.environ | {"HOME": self.folder.name})
        os.close(to_browser)
        os.close(from_browser)
        self.buffer = b""
        self.next_id = 0
        self.answers = {}
        self.pages = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.send("Browser.close")
        except (AssertionError, OSError):
            self.process.kill()
        self.process.wait(TIMEOUT_S)
        os.close(self.out)
        os.close(self.incoming)
        self.folder.cleanup()

    def send(self, method, session=None, **parameters):
        self.next_id += 1
        number = self.next_id
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        deadline = time.monotonic() + TIMEOUT_S
        while number not in self.answers:
            self.read(deadline, method)
        answer = self.answers.pop(number)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def read(self, deadline, what):
        ready, _, _ = select.select([self.incoming], [], [], max(0, deadline - time.monotonic()))
        data = os.read(self.incoming, 1 << 16) if ready else b""
        if not data:
            raise AssertionError(f"the browser does not answer {what}")
        self.buffer += data
        *messages, self.buffer = self.buffer.split(b"\0")
        for message in messages:
            self.handle(json.loads(message))

    def handle(self, message):
        if "id" in message:
            self.answers[message["id"]] = message
            return
        page = self.pages.get(message.get("sessionId"))
        if page is None:
            return
        parameters = message["params"]
        if message["method"] == "Runtime.consoleAPICalled":
            page.messages.append(" ".join(str(one.get("value", one.get("description"))) for one in parameters["args"]))
        elif message["method"] == "Runtime.exceptionThrown":
            page.messages.append(parameters["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif message["method"] == "Log.entryAdded":
            page.messages.append(parameters["entry"]["text"])
        elif message["method"] == "Network.requestWillBeSent":
            page.requested.append(parameters["request"]["url"])
        elif message["method"] == "Page.javascriptDialogOpening":
            page.dialogs.append(parameters["message"])
            data = json.dumps({"id": 0, "sessionId": page.session, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}})
            os.write(self.out, data.encode() + b"\0")

    def page(self, url="about:blank", width=1280, height=800):
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session)
        page.target = target
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.send(f"{domain}.enable")
        page.size(width, height)
        if url != "about:blank":
            page.open(url)
        return page
