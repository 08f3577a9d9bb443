"""The files below packaging/ that other programs read: versions, scripts, units; and what scripts of packaging/ read."""
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"
VERSION = re.search(r"^project\(quire VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
TIMEOUT_S = 300


def load(script):
    spec = importlib.util.spec_from_file_location(pathlib.Path(script).stem, PACKAGING / script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class PackagingFiles(unittest.TestCase):
    def test_versions_are_the_project_s(self):
        for name in "oci/compose.yaml", "kubernetes/base/kustomization.yaml", "kubernetes/chart/Chart.yaml", "kubernetes/chart/values.yaml":
            found = set(re.findall(r"(?<![\d.])\d+\.\d+\.\d+(?![\d.])", (PACKAGING / name).read_text()))
            self.assertEqual(found, {VERSION}, name)

    def test_scripts_are_valid(self):
        for script in sorted(PACKAGING.rglob("*.sh")):
            shell = "bash" if "bash" in script.read_text().splitlines()[0] or script.name == "debian_packages.sh" else "sh"
            checked = subprocess.run([shell, "-n", script], capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
            self.assertEqual(checked.returncode, 0, checked.stderr)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_units_are_valid(self):
        with tempfile.TemporaryDirectory(prefix="quire-units-") as folder:
            units = []
            for unit in sorted((ROOT / "systemd").glob("*.s*")):
                if unit.suffix not in (".service", ".socket"):
                    continue
                units.append(pathlib.Path(folder) / unit.name)
                # A program that is there.
                units[-1].write_text(re.sub(r"(?m)^(ExecStart=)\S+", rf"\g<1>{sys.executable}", unit.read_text()))
            self.assertIn("quire.service", {unit.name for unit in units})
            checked = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True,
                                     check=False, timeout=TIMEOUT_S)
            said = [line for line in checked.stderr.splitlines() if "quire" in line]
            self.assertEqual((checked.returncode, said), (0, []), checked.stderr)

    def test_symbol_versions_are_read(self):
        symbols = load("portable/check_symbols.py")
        libraries, versions, others = symbols.requirements(sys.executable)
        self.assertIn("libc.so.6", libraries)
        self.assertTrue(versions)
        self.assertFalse([name for name in others if re.fullmatch(r"GLIBC_[0-9.]+", name)])

    def test_versions_of_another_architecture_are_its_sysroot_s(self):
        with tempfile.TemporaryDirectory(prefix="quire-sbom-") as folder:
            root = pathlib.Path(folder)
            (root / "packages.txt").write_text("libssl-dev 3.0.1-1\n")
            (root / "usr/share/doc/libssl-dev").mkdir(parents=True)
            (root / "usr/share/doc/libssl-dev/copyright").write_text("terms")
            packages = load("sbom/make_sbom.py").SysrootPackages(root)
            self.assertEqual((packages.version("libssl-dev"), packages.copyright("libssl-dev")), ("3.0.1-1", b"terms"))
            self.assertRaises(SystemExit, packages.version, "zlib1g-dev")


if __name__ == "__main__":
    unittest.main()
