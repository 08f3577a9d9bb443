"""A system booted by systemd-nspawn, for tests of the package."""
import os
import pathlib
import signal
import subprocess
import time


def run(*command, check=True, **options):
    return subprocess.run([str(word) for word in command], check=check, text=True, capture_output=True, **options)


def wait_until(what, condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.1)
    return value


class Machine:
    """A system booted by systemd-nspawn, with a network of its own that has a loopback interface only. nspawn's own filter
    of system calls lacks Landlock, which a machine has."""

    def __init__(self, root):
        self.root = root
        self.log = open(root.parent / "console.log", "wb")
        self.process = subprocess.Popen(["systemd-nspawn", "-q", "-b", "--register=no", "--keep-unit",
                                         "--private-network", "--link-journal=no",
                                         "--system-call-filter=landlock_create_ruleset landlock_add_rule "
                                         "landlock_restrict_self", "-D", str(root)],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.leader = int(wait_until("a first process", self.first_child))
        wait_until("the end of booting", lambda: self("systemctl", "is-system-running", check=False).stdout.strip()
                   in ("running", "degraded"), 300)

    def first_child(self):
        path = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return path.read_text().split()[0] if path.exists() and path.read_text().split() else None

    def __call__(self, *command, check=True, input=None):
        done = run("nsenter", "-t", self.leader, "-m", "-u", "-i", "-n", "-p", "-r", "-w/", "env", "-i",
                   "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8",
                   "DEBIAN_FRONTEND=noninteractive", *command, check=False, input=input)
        if check and done.returncode != 0:
            raise AssertionError(f"{command} gave {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def show(self, unit, name):
        return self("systemctl", "show", unit, "-P", name).stdout.strip()

    def main_pid(self):
        return int(self.show("quire.service", "MainPID"))

    def stop(self):
        os.kill(self.leader, signal.SIGRTMIN + 4)  # power off
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def enter_network(leader):
    """This thread's sockets are the machine's from now on."""
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/proc/{leader}/ns/net") as namespace:
        if libc.setns(namespace.fileno(), 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")
