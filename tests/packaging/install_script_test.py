"""install.sh with a tarball of two small files: what it verifies, where it installs, what it removes. The real tarball:
packaging/tarball/test.sh."""
import base64
import hashlib
import pathlib
import os
import platform
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "packaging/tarball/install.sh"
NAME = f"quire-1.2.3-linux-{platform.machine()}"
KEY_ID = b"12345678"
TIMEOUT_S = 120
NEEDED = "zstd", "openssl", "tar", "sha256sum"


def run(*command, **settings):
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, **settings)


def openssl_has_ed25519():
    return shutil.which("openssl") and run("openssl", "version").stdout.split()[1] >= "3"


@unittest.skipUnless(platform.machine() in ("x86_64", "aarch64"), "there is no tarball for this machine")
@unittest.skipUnless(all(map(shutil.which, NEEDED)) and openssl_has_ed25519(), f"needs {', '.join(NEEDED)}")
class InstallScript(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="quire-install-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.release = self.folder / "release"
        self.prefix = self.folder / "prefix"
        self.release.mkdir()
        self.make_release("exit 0")

    def make_release(self, self_test):
        tree = self.folder / NAME
        shutil.rmtree(tree, ignore_errors=True)
        for name, text in {"bin/quired": f"#!/bin/sh\n{self_test}\n", "share/quire/models/model": "weights",
                           "share/man/man1/quired.1.gz": "page"}.items():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_text(text)
        (tree / "bin/quired").chmod(0o755)
        shutil.copy(SCRIPT, tree / "install.sh")
        tarball = self.release / f"{NAME}.tar.zst"
        packed = subprocess.run(["tar", "-C", self.folder, "-c", NAME], capture_output=True, check=True).stdout
        tarball.write_bytes(subprocess.run(["zstd", "-q"], input=packed, capture_output=True, check=True).stdout)
        digest = hashlib.sha256(tarball.read_bytes()).hexdigest()
        (self.release / "SHA256SUMS").write_text(f"{digest}  {tarball.name}\n")
        self.sign()

    def sign(self):
        """A key and a signature as minisign writes them."""
        key = self.folder / "key.pem"
        run("openssl", "genpkey", "-algorithm", "ed25519", "-out", key)
        public = subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-outform", "DER"], capture_output=True, check=True)
        digest = self.folder / "digest"
        digest.write_bytes(hashlib.blake2b((self.release / "SHA256SUMS").read_bytes()).digest())
        signature = subprocess.run(["openssl", "pkeyutl", "-sign", "-inkey", key, "-rawin", "-in", digest],
                                   capture_output=True, check=True).stdout
        self.public_key = base64.b64encode(b"Ed" + KEY_ID + public.stdout[-32:]).decode()
        trusted = "quire"
        whole = self.folder / "whole"
        whole.write_bytes(signature + trusted.encode())
        of_whole = subprocess.run(["openssl", "pkeyutl", "-sign", "-inkey", key, "-rawin", "-in", whole],
                                  capture_output=True, check=True).stdout
        (self.release / "SHA256SUMS.minisig").write_text(
            f"untrusted comment: signature\n{base64.b64encode(b'ED' + KEY_ID + signature).decode()}\n"
            f"trusted comment: {trusted}\n{base64.b64encode(of_whole).decode()}\n")

    def install(self, *arguments, path=None):
        environment = os.environ | {"HOME": str(self.folder / "home"), "QUIRE_PUBLIC_KEY": ""}
        if path:
            environment["PATH"] = str(path)
        return run("sh", SCRIPT, "--prefix", self.prefix, "--no-service", "--from", self.release, *arguments, env=environment)

    def files(self):
        return sorted(p.relative_to(self.prefix).as_posix() for p in self.prefix.rglob("*") if p.is_file())

    def assert_refused(self, result, why):
        self.assertNotEqual(result.returncode, 0, result.stdout)
        self.assertIn(why, result.stderr)
        self.assertEqual(self.files() if self.prefix.exists() else [], [])

    def without(self, program):
        """A folder with all programs of the system but this one."""
        folder = self.folder / f"without-{program}"
        folder.mkdir()
        for place in "/usr/bin", "/bin", "/usr/local/bin":
            for file in pathlib.Path(place).iterdir():
                if file.name != program and not (folder / file.name).is_symlink():
                    (folder / file.name).symlink_to(file)
        return folder

    def test_installs_and_removes_all(self):
        other = self.prefix / "bin/other"
        other.parent.mkdir(parents=True)
        other.write_text("not ours")
        for _ in range(2):  # the second is an upgrade
            result = self.install("--public-key", self.public_key)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("signature: good", result.stdout)
        self.assertEqual(self.files(), ["bin/other", "bin/quired", "share/man/man1/quired.1.gz", "share/quire/install.sh",
                                        "share/quire/installed-files", "share/quire/models/model"])
        result = run("sh", self.prefix / "share/quire/install.sh", "uninstall", "--prefix", self.prefix)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.files(), ["bin/other"])
        self.assertEqual([p.name for p in self.prefix.iterdir()], ["bin"])  # a folder that was there before

    def test_folders_that_it_made_go_with_it(self):
        for _ in range(2):  # the second is an upgrade
            self.assertEqual(self.install("--checksum-only").returncode, 0)
        result = run("sh", self.prefix / "share/quire/install.sh", "uninstall", "--prefix", self.prefix)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertFalse(self.prefix.exists())

    def test_purging_removes_prefixes_that_were_kept(self):
        self.assertEqual(self.install("--checksum-only").returncode, 0)
        kept = self.folder / "home/.cache/quire/prefixes/secret"
        other = self.folder / "home/.cache/other"
        for file in kept, other:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("")
        environment = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
        # As a user: root's purge would reach the service of this machine.
        script = self.prefix / "share/quire/install.sh"
        script.write_text(script.read_text().replace('is_root() { [ "$(id -u)" = 0 ]; }', "is_root() { false; }"))
        result = run("sh", script, "uninstall", "--purge", "--prefix", self.prefix,
                     env=environment | {"HOME": str(self.folder / "home")})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertFalse(kept.parent.parent.exists())
        self.assertTrue(other.exists())

    def test_openssl_verifies_where_there_is_no_minisign(self):
        path = self.without("minisign")
        self.assertEqual(self.install("--public-key", self.public_key, path=path).returncode, 0)
        run("sh", SCRIPT, "uninstall", "--prefix", self.prefix)
        first = self.public_key
        self.sign()  # with another key
        self.assert_refused(self.install("--public-key", first, path=path), "signature of SHA256SUMS is wrong")

    def test_a_wrong_signature_is_refused(self):
        sums = self.release / "SHA256SUMS"
        sums.write_text(sums.read_text() + "# added\n")
        self.assert_refused(self.install("--public-key", self.public_key), "signature of SHA256SUMS is wrong")

    def test_a_changed_tarball_is_refused(self):
        tarball = self.release / f"{NAME}.tar.zst"
        tarball.write_bytes(tarball.read_bytes() + b"x")
        self.assert_refused(self.install("--public-key", self.public_key), "checksum")

    def test_of_two_architectures_its_own_is_installed(self):
        other = "aarch64" if platform.machine() == "x86_64" else "x86_64"
        sums = self.release / "SHA256SUMS"
        sums.write_text(f"{'0' * 64}  quire-1.2.3-linux-{other}.tar.zst\n" + sums.read_text())
        self.sign()
        result = self.install("--public-key", self.public_key)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("bin/quired", self.files())

    def test_nothing_is_installed_without_a_key_unless_asked_for(self):
        self.assert_refused(self.install(), "no public key")
        result = self.install("--checksum-only")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_an_address_without_encryption_is_refused(self):
        self.assert_refused(self.install("--from", "http://192.0.2.1/quire", "--checksum-only"), "not encrypted")

    def test_a_failed_self_test_installs_nothing(self):
        self.make_release("exit 10")
        self.assert_refused(self.install("--checksum-only"), "status 10")

    def test_an_incomplete_sandbox_is_said(self):
        self.make_release("exit 11")
        result = self.install("--checksum-only")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("sandbox of model processes is not complete", result.stdout)


if __name__ == "__main__":
    unittest.main()
