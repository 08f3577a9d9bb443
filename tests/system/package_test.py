#!/usr/bin/env python3
"""The package in a booted Debian 12: install, chat, sandbox, restart under load, watchdog, keys, upgrade, purge.

    tests/system/package_test.py build/release/quire_0.20.0_amd64.deb [FOLDER]

As root, on a machine with debootstrap, systemd-nspawn and a Debian mirror (MIRROR, default that of apt). FOLDER
(default /var/tmp/quire-system) keeps the bare system, so that a second run starts sooner; what is booted is a copy.
"""
import http.client
import json
import os
import pathlib
import re
import shutil
import sys
import threading
import time

from machine import Machine, enter_network, run, wait_until

PACKAGES = "systemd,systemd-sysv,dbus,curl,procps"
MODEL = "quire-demo"
SERVICE = "/etc/systemd/system/quire.service.d/test.conf"
CHAT = {"model": MODEL, "stream": False, "options": {"temperature": 0, "num_predict": 24},
        "messages": [{"role": "user", "content": "What is a prefix cache?"}]}


def request(method, path, body=None, headers=None, timeout=120):
    connection = http.client.HTTPConnection("127.0.0.1", 11434, timeout=timeout)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers or {})
        reply = connection.getresponse()
        return reply.status, reply.read()
    finally:
        connection.close()


def content(body):
    return json.loads(body)["message"]["content"]


class Load:
    """Clients that ask again and again: half of them each time over a new connection, half over one that they keep
    as long as the server does."""

    def __init__(self, machine, answer, clients=8):
        self.answer = answer
        self.ended = threading.Event()
        self.outcomes = []
        self.threads = [threading.Thread(target=self.ask, args=[machine.leader, number % 2 == 0])
                        for number in range(clients)]

    def ask(self, leader, keep):
        enter_network(leader)
        connection = http.client.HTTPConnection("127.0.0.1", 11434, timeout=120)
        while not self.ended.is_set():
            try:
                connection.request("POST", "/api/chat", json.dumps(CHAT))
                reply = connection.getresponse()
                body = reply.read()
                good = reply.status == 200 and content(body) == self.answer
                self.outcomes.append("good" if good else f"status {reply.status} {body[:100]}")
            except (OSError, http.client.HTTPException) as error:
                self.outcomes.append(f"{type(error).__name__} {error}, keep={keep}")
                connection.close()
            if not keep:
                connection.close()
        connection.close()

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self.ended.set()
        for thread in self.threads:
            thread.join()


def prepare(folder, package):
    base = folder / "base"
    if not (base / "etc/debian_version").exists():
        mirror = os.environ.get("MIRROR") or run("apt-get", "indextargets", "--format", "$(REPO_URI)").stdout.split()[0]
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", base, mirror)
    # The packages it depends on come first: the machine that boots has no network.
    depends = run("dpkg-deb", "-f", package, "Depends").stdout
    names = [re.split(r"[ (|]", item.strip())[0] for item in depends.split(",")]
    run("chroot", base, "apt-get", "update", "-qq")
    run("chroot", base, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq",
        "--no-install-recommends", *names)
    root = folder / "root"
    if root.exists():
        shutil.rmtree(root)
    run("cp", "-a", "--reflink=auto", base, root)
    shutil.copy(package, root / "root/quire.deb")
    return root


def step(text):
    print(f"== {text}", flush=True)


def install(machine):
    step("install")
    before = set(machine("find", "/", "-xdev", "-name", "*quire*").stdout.split())
    machine("dpkg", "-i", "/root/quire.deb")
    wait_until("the service", lambda: machine.show("quire.service", "ActiveState") == "active")
    assert machine.show("quire.socket", "ActiveState") == "active"
    assert machine.show("quire.service", "StatusText").startswith("Listening on 127.0.0.1:11434")
    assert machine("stat", "-c", "%U %a", "/etc/quire/keys").stdout.split() == ["root", "600"]
    assert machine("stat", "-c", "%U %a", "/var/lib/quire").stdout.split() == ["quire", "750"]
    print(machine("systemd-analyze", "security", "quire.service").stdout.strip().splitlines()[-1])
    return before


def chat(machine):
    step("chat")
    assert request("GET", "/readyz")[0] == 200
    status, body = request("POST", "/api/chat", CHAT)
    assert status == 200, body
    print("  " + content(body))
    said = machine("quire", "run", MODEL, "Hello!")
    assert said.stdout.strip(), said
    over_socket = machine("curl", "-s", "--unix-socket", "/run/quire.sock", "http://quire/api/tags").stdout
    assert MODEL in over_socket
    runner = machine("pgrep", "-f", "quire-runner").stdout.split()[0]
    status = machine("cat", f"/proc/{runner}/status").stdout
    assert re.search(r"Seccomp:\s2", status) and re.search(r"NoNewPrivs:\s1", status), status
    entry = json.loads(machine("journalctl", "-u", "quire", "-o", "json", "ENDPOINT=/api/chat", "-n", "1").stdout)
    print("  journal:", {name: entry[name] for name in ("REQUEST_ID", "MODEL", "STATUS", "TTFT_MS", "PROMPT_TOKENS",
                                                        "OUTPUT_TOKENS", "FINISH_REASON", "RUNNER_PID", "PRIORITY")})
    scrape = request("GET", "/metrics")[1].decode()
    assert 'quire_requests_total{code="200",endpoint="/api/chat",model="quire-demo:latest"}' in scrape
    print("  " + machine("quire", "doctor").stdout.replace("\n", "\n  ").strip())
    machine("chmod", "700", "/var/lib")
    done = machine("quire", "doctor", check=False)
    machine("chmod", "755", "/var/lib")
    assert done.returncode == 1 and "/var/lib (drwx------ root root): quire cannot enter it: no x permission" in done.stdout
    return content(body)


def status_of(machine, pid, name):
    return int(re.search(rf"^{name}:\s*(\d+)", machine("cat", f"/proc/{pid}/status").stdout, re.M)[1])


def self_test_under(machine):
    """The self-test as a service with the settings of the unit: its sandbox includes Landlock, which shows nowhere else."""
    unit = machine("cat", "/lib/systemd/system/quire.service").stdout
    lines = [line for line in unit.splitlines() if not line.startswith(("Requires=", "After=", "Restart", "WatchdogSec="))]
    text = "\n".join(lines).replace("Type=notify", "Type=oneshot").replace("/usr/bin/quired", "/usr/bin/quired --selftest")
    machine("tee", "/run/systemd/system/quire-selftest.service", input=text)
    machine("systemctl", "daemon-reload")
    done = machine("systemctl", "start", "quire-selftest.service", check=False)
    printed = machine("journalctl", "-u", "quire-selftest.service", "-o", "cat", "--no-pager").stdout
    machine("rm", "/run/systemd/system/quire-selftest.service")
    machine("systemctl", "daemon-reload")
    assert done.returncode == 0, printed
    return printed


def sandbox(machine, answer):
    step("sandbox")
    runner = machine("pgrep", "-f", "quire-runner").stdout.split()[0]
    daemon, own = (status_of(machine, pid, "Seccomp_filters") for pid in (machine.main_pid(), runner))
    assert own == daemon + 3, (own, daemon)
    log = machine("journalctl", "-u", "quire").stdout
    assert "not filtered" not in log and "not available" not in log, log
    nice = machine("ps", "-L", "-o", "ni=", "-p", runner).stdout.split()
    assert nice.count("5") == 1, nice
    assert re.search(r"^quire_runner_system_call_filters\{.*\} 3$", request("GET", "/metrics")[1].decode(), re.M)
    assert "has 3 of 3 filters" in machine("quire", "doctor").stdout
    names = {variable.split("=")[0] for variable in machine("cat", f"/proc/{runner}/environ").stdout.split("\0")}
    assert not names & {"CREDENTIALS_DIRECTORY", "NOTIFY_SOCKET", "QUIRE_CONFIG"}, names
    print(f"  {daemon} filters of the service, {own - daemon} of the runner, nice values {sorted(set(nice))}")
    print("  " + next(line for line in self_test_under(machine).splitlines() if line.startswith("sandbox")))
    # A unit that denies a step: no model is loaded.
    machine("mkdir", "-p", os.path.dirname(SERVICE))
    machine("tee", SERVICE, input="[Service]\nSystemCallFilter=~seccomp\n")
    machine("systemctl", "daemon-reload")
    machine("systemctl", "restart", "quire.service")
    status, body = request("POST", "/api/chat", CHAT)
    assert status == 503 and b"the model runner is not confined" in body, (status, body)
    machine("rm", SERVICE)
    machine("systemctl", "daemon-reload")
    machine("systemctl", "restart", "quire.service")
    status, body = request("POST", "/api/chat", CHAT)
    assert status == 200 and content(body) == answer, body


def restart_under_load(machine, answer):
    step("restart under load")
    with Load(machine, answer) as load:
        for _ in range(4):
            time.sleep(1.5)
            old = machine.main_pid()
            machine("systemctl", "restart", "quire.service")
            assert machine.main_pid() not in (0, old)
        machine("systemctl", "reload", "quire.service")
        time.sleep(1.5)
    bad = [outcome for outcome in load.outcomes if outcome != "good"]
    print(f"  {len(load.outcomes)} answers, {len(bad)} bad over 4 restarts and a reload")
    assert not bad, bad[:10]
    assert len(load.outcomes) > 50


def watchdog(machine, answer):
    step("watchdog")
    machine("mkdir", "-p", os.path.dirname(SERVICE))
    machine("tee", SERVICE, input="[Service]\nWatchdogSec=3\n")
    machine("systemctl", "daemon-reload")
    machine("systemctl", "restart", "quire.service")
    old = machine.main_pid()
    begin = time.monotonic()
    machine("kill", "-STOP", str(old))
    wait_until("another daemon", lambda: machine.main_pid() not in (0, old))
    print(f"  a hung daemon was replaced after {time.monotonic() - begin:.1f} s")
    assert machine.show("quire.service", "NRestarts") == "1"
    status, body = request("POST", "/api/chat", CHAT)
    assert status == 200 and content(body) == answer
    log = machine("journalctl", "-u", "quire").stdout
    assert "Watchdog timeout" in log


def crash(machine, answer):
    step("a daemon that is killed")
    old = machine.main_pid()
    machine("kill", "-KILL", str(old))
    status, body = request("POST", "/api/chat", CHAT)  # waits in the socket
    assert status == 200 and content(body) == answer
    wait_until("no orphan", lambda: len(machine("pgrep", "-f", "quire-runner", check=False).stdout.split()) == 1)


def runner_killed(machine, answer):
    step("a runner that is killed")
    daemon = machine.main_pid()
    runner = machine("pgrep", "-f", "quire-runner").stdout.split()[0]
    assert machine("cat", f"/proc/{runner}/oom_score_adj").stdout.strip() == "500"
    machine("kill", "-KILL", runner)
    status, body = request("POST", "/api/chat", CHAT)
    assert status == 200 and content(body) == answer, body
    assert machine.main_pid() == daemon


def out_of_memory(machine, answer):
    step("a runner killed for memory")
    if "memory" not in machine("cat", "/sys/fs/cgroup/cgroup.controllers", check=False).stdout:
        print("  left out: this machine's control groups do not count memory")
        return
    daemon = machine.main_pid()
    runner = machine("pgrep", "-f", "quire-runner").stdout.split()[0]
    before = int(machine.show("quire.service", "NRestarts"))
    # Less than daemon and runner have, more than the daemon alone.
    current = int(machine.show("quire.service", "MemoryCurrent"))
    for share in (0.6, 0.4, 0.3, 0.2):
        machine("systemctl", "set-property", "--runtime", "quire.service", "MemorySwapMax=0",
                f"MemoryMax={int(current * share)}", check=False)
        try:
            request("POST", "/api/chat", CHAT, timeout=10)
        except (OSError, http.client.HTTPException):
            pass
        if machine("kill", "-0", runner, check=False).returncode != 0:
            break
    machine("systemctl", "set-property", "--runtime", "quire.service", "MemoryMax=infinity")
    assert machine("kill", "-0", runner, check=False).returncode != 0, "the runner still lives"
    log = machine("journalctl", "-u", "quire").stdout
    print("  " + next(line for line in log.splitlines() if "oom" in line.lower() or "signal 9" in line or "SIGKILL" in line))
    wait_until("an answer", lambda: request("POST", "/api/chat", CHAT)[0] == 200)
    status, body = request("POST", "/api/chat", CHAT)
    assert status == 200 and content(body) == answer, body
    assert machine.main_pid() == daemon and int(machine.show("quire.service", "NRestarts")) == before


def story(number):
    return {"model": MODEL, "prompt": f"Once upon a time there were {number} foxes", "stream": True,
            "max_tokens": 400, "ignore_eos": True, "temperature": 1, "seed": number}


class Stream(threading.Thread):
    """One answer, event by event."""

    def __init__(self, machine, number):
        super().__init__()
        self.leader, self.number = machine.leader, number
        self.begun = threading.Event()
        self.text, self.done = "", False

    def run(self):
        enter_network(self.leader)
        connection = http.client.HTTPConnection("127.0.0.1", 11434, timeout=120)
        connection.request("POST", "/v1/completions", json.dumps(story(self.number)))
        for line in connection.getresponse():
            event = line.removeprefix(b"data: ").strip()
            self.done = self.done or event == b"[DONE]"
            if event.startswith(b"{"):
                self.text += "".join(choice["text"] for choice in json.loads(event)["choices"])
            if self.text:
                self.begun.set()
        connection.close()


def streams_go_on(machine):
    step("a runner killed in the middle of 8 streams")

    def answers(disturb):
        streams = [Stream(machine, number) for number in range(8)]
        for stream in streams:
            stream.start()
        for stream in streams:
            assert stream.begun.wait(120)
        if disturb:
            running = sum(not stream.done for stream in streams)
            machine("pkill", "-KILL", "-f", "quire-runner")
            print(f"  killed while {running} of 8 streams ran")
        for stream in streams:
            stream.join()
        assert all(stream.done for stream in streams), [stream.text[-100:] for stream in streams]
        return [stream.text for stream in streams]

    undisturbed = answers(False)
    assert answers(True) == undisturbed
    assert len(set(undisturbed)) > 1 and all(undisturbed)


def keys(machine):
    step("keys")
    user = machine("quire", "key", "user", "--append", "/etc/quire/keys").stdout.strip()
    admin = machine("quire", "key", "boss", "--admin", "--append", "/etc/quire/keys").stdout.strip()
    machine("systemctl", "restart", "quire.service")

    def as_who(key):
        return {"Authorization": f"Bearer {key}"}

    assert request("POST", "/api/chat", CHAT)[0] == 401
    assert request("POST", "/api/chat", CHAT, as_who(user))[0] == 200
    copy = {"source": MODEL, "destination": "copy"}
    assert request("POST", "/api/copy", copy, as_who(user))[0] == 403
    assert request("POST", "/api/copy", copy, as_who(admin))[0] == 200
    assert request("GET", "/readyz")[0] == 200
    # With keys, and only with them, other machines may be served.
    machine("mkdir", "-p", "/etc/systemd/system/quire.socket.d")
    machine("tee", "/etc/systemd/system/quire.socket.d/test.conf", input="[Socket]\nListenStream=0.0.0.0:11435\n")
    machine("systemctl", "daemon-reload")
    machine("systemctl", "stop", "quire.service", "quire.socket")
    machine("systemctl", "start", "quire.socket", "quire.service")
    assert "0.0.0.0:11435" in machine.show("quire.service", "StatusText")
    machine("rm", "-r", "/etc/systemd/system/quire.socket.d")
    machine("systemctl", "daemon-reload")
    machine("systemctl", "stop", "quire.service", "quire.socket")
    machine("systemctl", "start", "quire.socket", "quire.service")
    return as_who(user)


def key_routes(machine):
    """Keys that the daemon adds to a file of its own and removes from it."""
    step("keys by HTTP")
    machine("cp", "/etc/quire/keys", "/var/lib/quire/keys")
    machine("chown", "quire:quire", "/var/lib/quire/keys")
    boss = machine("quire", "key", "owner", "--admin", "--append", "/var/lib/quire/keys").stdout.strip()
    machine("cp", "/etc/quire/quire.conf", "/root/quire.conf")
    machine("sh", "-c", "echo QUIRE_KEYS=/var/lib/quire/keys >> /etc/quire/quire.conf")
    machine("systemctl", "restart", "quire.service")
    admin = {"Authorization": f"Bearer {boss}"}
    status, body = request("POST", "/quire/keys", {"name": "guest"}, admin)
    assert status == 201, (status, body)
    guest = {"Authorization": f"Bearer {json.loads(body)['key']}"}
    assert request("GET", "/api/tags", None, guest)[0] == 200
    status, body = request("DELETE", "/quire/keys", {"name": "guest"}, admin)
    assert status == 204, (status, body)
    assert request("GET", "/api/tags", None, guest)[0] == 401
    assert machine("stat", "-c", "%U %G %a", "/var/lib/quire/keys").stdout.split() == ["quire", "quire", "600"]
    machine("cp", "/root/quire.conf", "/etc/quire/quire.conf")
    machine("rm", "/var/lib/quire/keys", "/root/quire.conf")
    machine("systemctl", "restart", "quire.service")


def reload(machine, user):
    step("reload")
    machine("sh", "-c", "echo OLLAMA_ORIGINS=https://chat.example >> /etc/quire/quire.conf")
    asked = user | {"Origin": "https://chat.example"}
    assert request("GET", "/api/tags", None, asked)[0] == 403
    machine("systemctl", "reload", "quire.service")
    wait_until("the new origin", lambda: request("GET", "/api/tags", None, asked)[0] == 200)
    machine("sh", "-c", "echo OLLAMA_ORIGIN=typo >> /etc/quire/quire.conf")
    machine("systemctl", "reload", "quire.service")
    wait_until("the failed reload", lambda: "reload failed" in machine.show("quire.service", "StatusText"))
    assert request("GET", "/api/tags", None, asked)[0] == 200
    machine("sed", "-i", "/typo/d", "/etc/quire/quire.conf")


def upgrade(machine, user):
    step("upgrade")
    # dpkg replaces the runner before the daemon is restarted: it starts the file that it has opened.
    runner = "/usr/lib/quire/quire-runner"
    machine("cp", "-p", runner, "/root/quire-runner")
    machine("sh", "-c", f"cp -p /usr/bin/false {runner}.new && mv {runner}.new {runner}")
    for keep_alive in (0, 60):
        status, body = request("POST", "/api/generate", {"model": MODEL, "keep_alive": keep_alive}, user)
        assert status == 200, (status, body)
    assert request("POST", "/api/chat", CHAT, user)[0] == 200
    machine("mv", "/root/quire-runner", runner)
    machine("dpkg", "-i", "/root/quire.deb")
    wait_until("the service", lambda: machine.show("quire.service", "ActiveState") == "active")
    assert "chat.example" in machine("cat", "/etc/quire/quire.conf").stdout
    status, body = request("GET", "/api/tags", None, user)
    assert status == 200 and b"copy:latest" in body


def purge(machine, before):
    step("remove and purge")
    machine("dpkg", "-r", "quire")
    assert machine("test", "-e", "/etc/quire/keys").returncode == 0
    assert machine.show("quire.socket", "ActiveState") in ("inactive", "failed")
    machine("dpkg", "-P", "quire")
    after = set(machine("find", "/", "-xdev", "-name", "*quire*").stdout.split())
    left = {path for path in after - before if not path.startswith(("/proc", "/sys", "/var/log/journal"))}
    print("  left:", sorted(left) or "nothing")
    assert not left, left
    assert machine("getent", "passwd", "quire", check=False).returncode != 0
    assert machine("getent", "group", "quire", check=False).returncode != 0
    assert machine("pgrep", "-f", "quire", check=False).returncode != 0
    assert machine("find", "/", "-xdev", "-nouser").stdout == ""


def main():
    package = pathlib.Path(sys.argv[1]).resolve()
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "/var/tmp/quire-system").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    step("a bare system")
    machine = Machine(prepare(folder, package))
    try:
        enter_network(machine.leader)
        before = install(machine)
        answer = chat(machine)
        sandbox(machine, answer)
        restart_under_load(machine, answer)
        watchdog(machine, answer)
        crash(machine, answer)
        runner_killed(machine, answer)
        out_of_memory(machine, answer)
        streams_go_on(machine)
        user = keys(machine)
        key_routes(machine)
        reload(machine, user)
        upgrade(machine, user)
        purge(machine, before)
        print("all passed")
    except Exception:
        print(machine("journalctl", "-u", "quire.service", "-u", "quire.socket", "-n", "60", "--no-pager",
                      check=False).stdout)
        raise
    finally:
        machine.stop()


if __name__ == "__main__":
    main()
