"""A client's place: a fresh daemon, a home and a project folder; its requests and what was refused of them."""
import os
import re
import signal
import subprocess

SKIPPED = 77
MODEL = "agent"
RUN_TIMEOUT_S = 240


class Place:
    """One client's daemon, home and project folder."""

    def __init__(self, daemon, folder, modules):
        self.daemon = daemon
        self.base = f"http://127.0.0.1:{daemon.port}"
        self.home = folder / "home"
        self.project = folder / "project"
        self.home.mkdir()
        self.project.mkdir()
        (self.project / "README.md").write_text("A project.\n")
        self.modules = modules
        keep = {name: os.environ[name] for name in ["PATH", "LANG", "TERM"] if name in os.environ}
        self.environment = keep | {"HOME": str(self.home), "BASE_URL": self.base, "MODEL": MODEL, "CI": "1",
                                   "NO_COLOR": "1", "OPENAI_API_KEY": "none"}

    def run(self, *command, **environment):
        program = self.modules / "node_modules/.bin" / command[0]
        command = [str(program) if program.exists() else command[0], *command[1:]]
        process = subprocess.Popen(command, cwd=self.project, env=self.environment | environment, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            output, _ = process.communicate(timeout=RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            raise AssertionError(f"took longer than {RUN_TIMEOUT_S} s: {output[-2000:]}") from None
        assert process.returncode == 0, f"exit code {process.returncode}: {output[-3000:]}"
        return output

    def requests(self, path):
        """Figures of the answered requests to a path, from the daemon's log."""
        rows = [line for line in self.daemon.log().splitlines() if f" path={path} " in line and " status=200 " in line]
        return [dict(re.findall(r"(\w+)=(\S+)", line)) for line in rows]

    refusals = 0  # that are expected

    def refused(self):
        return [line for line in self.daemon.log().splitlines() if re.search(r" status=(4|5)\d\d ", line)
                and " path=/v1/" in line and " path=/v1/models" not in line]
