"""Kubernetes objects: what `kubectl kustomize` builds and what the Helm chart renders to, for several values. The objects must refer
to each other by the right names; where packaging/kubernetes/test.sh has installed the schemas, they are checked against these."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

try:
    import yaml
except ImportError:
    yaml = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "packaging/kubernetes"
SCHEMAS = ROOT / "build/kubernetes-models"
GO_PATH = pathlib.Path("/usr/share/gocode")
VERSION = re.search(r"^project\(quire VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text(), re.M)[1]
TIMEOUT_S = 300
ALWAYS = {"Deployment", "Service", "PersistentVolumeClaim", "PodDisruptionBudget"}
ALL = ALWAYS | {"NetworkPolicy", "HorizontalPodAutoscaler", "ServiceMonitor"}
ALL_VALUES = """
replicas: 3
keysSecret: quire-keys
settings: {QUIRE_ALLOW_REMOTE: "1", OLLAMA_KEEP_ALIVE: 5m}
models: {storageClass: fast, accessMode: ReadWriteMany}
monitoring: true
autoscaling: {enabled: true, maxReplicas: 9}
"""
FEW_VALUES = "networkPolicy: false\n"


def kinds(objects):
    return [one["kind"] for one in objects]


def build_base():
    built = subprocess.run(["kubectl", "kustomize", FOLDER / "base"], capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    if built.returncode != 0:
        raise AssertionError(built.stderr)
    return built.stdout


def render_chart(values):
    with tempfile.TemporaryDirectory(prefix="quire-chart-") as folder:
        changed = pathlib.Path(folder) / "changed.yaml"
        changed.write_text(values)
        built = subprocess.run(["go", "run", FOLDER / "render_chart.go", FOLDER / "chart", "here", changed], capture_output=True,
                               text=True, check=False, timeout=TIMEOUT_S,
                               env=os.environ | {"GO111MODULE": "off", "GOPATH": str(GO_PATH), "GOFLAGS": ""})
    if built.returncode != 0:
        raise AssertionError(built.stderr)
    return built.stdout


@unittest.skipUnless(yaml, "python3-yaml is not installed")
class Kubernetes(unittest.TestCase):
    def check_references(self, objects):
        """Names that one object has of another."""
        by_kind = {one["kind"]: one for one in objects}
        self.assertEqual(len(by_kind), len(objects))
        deployment = by_kind["Deployment"]
        template = deployment["spec"]["template"]
        labels = template["metadata"]["labels"]
        selectors = [deployment["spec"]["selector"]["matchLabels"], by_kind["Service"]["spec"]["selector"],
                     by_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]]
        if "NetworkPolicy" in by_kind:
            selectors.append(by_kind["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"])
        for selector in selectors:
            self.assertTrue(selector)
            self.assertLessEqual(selector.items(), labels.items())
        if "ServiceMonitor" in by_kind:
            monitor = by_kind["ServiceMonitor"]["spec"]
            self.assertLessEqual(monitor["selector"]["matchLabels"].items(), by_kind["Service"]["metadata"]["labels"].items())
            self.assertEqual(monitor["endpoints"][0]["port"], by_kind["Service"]["spec"]["ports"][0]["name"])
        if "HorizontalPodAutoscaler" in by_kind:
            scaler = by_kind["HorizontalPodAutoscaler"]["spec"]
            self.assertEqual(scaler["scaleTargetRef"]["name"], deployment["metadata"]["name"])
            self.assertEqual(scaler["metrics"][0]["pods"]["metric"]["name"], "quire_pending_prefill_seconds")
        self.check_pod(template["spec"], by_kind)

    def check_pod(self, pod, by_kind):
        container, = pod["containers"]
        ports = {port["name"] for port in container["ports"]}
        self.assertIn(by_kind["Service"]["spec"]["ports"][0]["targetPort"], ports)
        self.assertIn(container["readinessProbe"]["httpGet"]["port"], ports)
        self.assertEqual(container["readinessProbe"]["httpGet"]["path"], "/readyz")
        self.assertEqual({mount["name"] for mount in container["volumeMounts"]}, {volume["name"] for volume in pod["volumes"]})
        claims = {v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "persistentVolumeClaim" in v}
        self.assertEqual(claims, {by_kind["PersistentVolumeClaim"]["metadata"]["name"]})
        self.assertTrue(pod["securityContext"]["runAsNonRoot"])
        self.assertEqual(container["securityContext"]["capabilities"]["drop"], ["ALL"])
        self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
        self.assertTrue(container["image"].endswith(f"/quire:{VERSION}"), container["image"])

    def check_schema(self, texts, status=0):
        if not (SCHEMAS / "node_modules").is_dir():
            return
        with tempfile.TemporaryDirectory(prefix="quire-schema-") as folder:
            files = []
            for number, text in enumerate(texts):
                files.append(pathlib.Path(folder) / f"{number}.yaml")
                files[-1].write_text(text)
            checked = subprocess.run(["node", FOLDER / "check_schema.mjs", SCHEMAS, *files], capture_output=True, text=True,
                                     check=False, timeout=TIMEOUT_S)
        self.assertEqual(checked.returncode, status, checked.stderr)

    @unittest.skipUnless(shutil.which("kubectl"), "kubectl is not installed")
    def test_kustomize_builds_all_kinds(self):
        text = build_base()
        objects = [one for one in yaml.safe_load_all(text) if one]
        self.assertEqual(set(kinds(objects)), ALL)
        self.check_references(objects)
        self.check_schema([text])

    def test_the_chart_has_the_same_kinds(self):
        templates = "".join(p.read_text() for p in (FOLDER / "chart/templates").glob("*.yaml"))
        self.assertEqual(set(re.findall(r"^kind: (\w+)", templates, re.M)), ALL)
        values = yaml.safe_load((FOLDER / "chart/values.yaml").read_text())
        for path in re.findall(r"\.Values\.([\w.]+)", templates):
            value = values
            for part in path.split("."):
                self.assertIn(part, value, path)
                value = value[part]

    @unittest.skipUnless(shutil.which("go") and (GO_PATH / "src/github.com/Masterminds/sprig").is_dir(), "Go and Sprig are not installed")
    def test_the_chart_renders(self):
        texts = [render_chart(values) for values in ("{}", FEW_VALUES, ALL_VALUES)]
        default, few, everything = ([one for one in yaml.safe_load_all(text) if one] for text in texts)
        for objects in default, few, everything:
            self.check_references(objects)
        self.assertEqual(set(kinds(default)), ALWAYS | {"NetworkPolicy"})
        self.assertEqual(set(kinds(few)), ALWAYS)
        self.assertEqual(set(kinds(everything)), ALL)
        deployment = next(one for one in everything if one["kind"] == "Deployment")
        self.assertNotIn("replicas", deployment["spec"])  # the autoscaler's
        environment = {one["name"]: one["value"] for one in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
        self.assertEqual(environment, {"QUIRE_ALLOW_REMOTE": "1", "OLLAMA_KEEP_ALIVE": "5m", "QUIRE_KEYS": "/etc/quire/keys"})
        self.check_schema(texts)
        for right, wrong in ("maxSurge:", "maxSurges:"), ("replicas: 1", 'replicas: "1"'):
            self.assertIn(right, texts[0])
            self.check_schema([texts[0].replace(right, wrong)], status=1)


if __name__ == "__main__":
    unittest.main()
