"""What the tests of the console share: a daemon with the bundled model, and a browser, for all cases of a class.

QUIRE_PICTURES=DIR writes a picture of each view there. Without Debian's chromium nothing runs: exit code 77.
"""
import functools
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


def picture(page, name):
    """The whole view, in both themes."""
    folder = os.environ.get("QUIRE_PICTURES")
    if not folder:
        return
    width, height = page.run("[innerWidth, Math.min(1600, innerHeight + document.querySelector('main').scrollHeight - document.querySelector('main').clientHeight)]")
    page.size(width, height)
    for theme in ("light", "dark"):
        page.theme(theme)
        page.run("new Promise((done) => setTimeout(done, 300))")
        page.picture(pathlib.Path(folder) / f"{name}-{theme}.png")


@functools.cache
def axe_core():
    """The text of axe-core from npm's registry, or nothing."""
    if not shutil.which("npm"):
        return None
    with tempfile.TemporaryDirectory(prefix="quire-axe-") as folder:
        try:
            done = subprocess.run(["npm", "pack", "--silent", "--fetch-retries=0", "axe-core@4.14.1"], cwd=folder, capture_output=True,
                                  text=True, timeout=180, check=True)
        except subprocess.SubprocessError:
            return None
        with tarfile.open(pathlib.Path(folder) / done.stdout.split()[-1]) as packed:
            return packed.extractfile("package/axe.min.js").read().decode()


def violations(page, axe):
    """What axe-core, whose text is `axe`, finds in the page as it is."""
    page.send("Runtime.evaluate", expression=axe)
    return page.run("axe.run().then(({violations}) => violations.map(({id, impact, nodes}) => "
                    "`${impact}: ${id}: ${nodes.map((one) => one.html).join(' ')}`))")


class ConsoleCase(unittest.TestCase):
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
        origin = f"http://127.0.0.1:{self.daemon.port}"
        page.send("Storage.clearDataForOrigin", origin=origin, storageTypes="local_storage")  # settings of other cases
        page.open(f"{origin}/ui/#/{view}")
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
        if page.run("matchMedia('(pointer: coarse)').matches"):  # Enter is a new line there
            page.click("button", "Send")
            return
        page.run("document.getElementById('prompt').focus()")
        page.press("Enter", 13)

    def answered(self, page, count):
        page.wait(f"document.querySelectorAll('.message.assistant').length === {count} && "
                  "!document.querySelector('[aria-busy=true]')", f"{count} answers")

    def sent_bodies(self, page):
        """What returns the bodies of the chats that the page asks for from now on."""
        page.run("""(() => {
            const real = window.fetch;
            window.bodies = [];
            window.fetch = (path, options) => {
              if (path === "/v1/chat/completions") bodies.push(JSON.parse(options.body));
              return real(path, options);
            };
        })()""")
        return lambda: page.run("bodies")

    def quiet(self, page):
        """No script failed, nothing was blocked, and nothing was asked of another host."""
        self.assertEqual([], page.messages)
        here = f"http://127.0.0.1:{self.daemon.port}/"
        self.assertEqual([], [url for url in page.requested if not url.startswith((here, "data:", "blob:"))])


def main():
    if not browsers.available():
        print("SKIPPED: no browser (Debian's package chromium)")
        sys.exit(77)
    unittest.main(verbosity=2)
