"""The chart and the Compose file: what they ask for is valid, and is what the pages say."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

import penstock
from penstock.config import StreamsConfig

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "penstock"
HELM = shutil.which("helm")
NEEDED = {"bootstrapServers": "kafka:9092", "settings": {"application.id": "orders", "commit.interval.ms": 2_000_000}}
ALL = NEEDED | {
    "image": {"repository": "registry.example/orders", "tag": "@sha256:" + "0" * 64},
    "files": {"app.py": "topology = None\n"},
    "staticMembership": True,
    "updateStrategy": "OnDelete",
    "env": [{"name": "SPARK_LOCAL_IP", "value": "127.0.0.1"}],
    "envFrom": [{"secretRef": {"name": "orders"}}],
    "imagePullSecrets": [{"name": "pull"}],
    "serviceAccountName": "orders",
    "podAnnotations": {"team": "orders"},
    "nodeSelector": {"disk": "fast"},
    "tolerations": [{"key": "spot", "operator": "Exists"}],
    "state": {"size": "1Gi", "storageClass": "fast"},
    "autoscaling": {
        "enabled": True,
        "topics": ["orders", "returns"],
        "lagThreshold": 2_000_000,
        "authentication": "kafka",
        "metadata": {"tls": "enable"},
    },
}
yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: make setup")


def helm(*words: str, values: dict, folder: Path) -> subprocess.CompletedProcess:
    if HELM is None:
        pytest.skip("helm is not installed: go install helm.sh/helm/v3/cmd/helm@v3.18.4")
    (folder / "values.json").write_text(json.dumps(values))
    return subprocess.run(
        [HELM, *words, "--values", folder / "values.json"], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.fixture
def rendered(tmp_path):
    """Render the chart with values, and return its objects by kind (config maps: by name)."""

    def render(values: dict) -> SimpleNamespace:
        done = helm("template", "orders", str(CHART), "--kube-version", "1.29.0", values=values, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        objects = list(yaml.safe_load_all(done.stdout))
        by_name = {each["metadata"]["name"]: each for each in objects if each["kind"] == "ConfigMap"}
        return SimpleNamespace(**{each["kind"]: each for each in objects}, config=by_name, objects=objects)

    return render


@pytest.mark.parametrize("values", [NEEDED, ALL], ids=["least", "all"])
def test_what_the_chart_makes_is_valid_for_kubernetes(rendered, values):
    validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed: make setup")
    for each in rendered(values).objects:
        if each["kind"] != "ScaledObject":  # KEDA's own
            for version in ("1.29", "1.37"):
                validate.validate(each, version, strict=True)


@pytest.mark.parametrize("values", [NEEDED, ALL], ids=["least", "all"])
def test_helm_lints_the_chart(tmp_path, values):
    done = helm("lint", "--strict", str(CHART), values=values, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_instance_is_watched_and_ends_in_order(rendered):
    made = rendered(NEEDED)
    pod = made.StatefulSet["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    paths = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert [each["path"] for each in paths.values()] == ["/health", "/health", "/ready"]
    settings = json.loads(made.config["orders-settings"]["data"]["app.json"])
    assert {each["port"] for each in paths.values()} == {"http"} == {each["name"] for each in container["ports"]}
    assert container["ports"][0]["containerPort"] == settings["penstock.http.port"]
    whole = StreamsConfig(settings)  # all are settings of the application
    assert pod["terminationGracePeriodSeconds"] * 1000 > whole["penstock.shutdown.timeout.ms"]
    assert settings["spark.master"] == "local[2]"
    assert whole["commit.interval.ms"] == 2_000_000
    assert made.PodDisruptionBudget["spec"]["maxUnavailable"] == 1
    assert made.StatefulSet["spec"]["replicas"] == 2
    assert not hasattr(made, "ScaledObject")


def test_an_instance_has_no_rights_that_it_does_not_need(rendered):
    for values in (NEEDED, ALL):
        pod = rendered(values).StatefulSet["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert pod["automountServiceAccountToken"] is bool(values.get("serviceAccountName"))
        writable = {each["mountPath"] for each in container["volumeMounts"] if not each.get("readOnly")}
        assert writable == {"/var/lib/penstock", "/tmp"}


def test_members_are_named_after_pods_and_scaled_by_the_lag_of_each_topic(rendered):
    made = rendered(ALL)
    container = made.StatefulSet["spec"]["template"]["spec"]["containers"][0]
    assert {"group.protocol=streams", "group.instance.id=$(POD_NAME)"} <= set(container["args"])
    assert container["image"] == ALL["image"]["repository"] + ALL["image"]["tag"]
    assert "replicas" not in made.StatefulSet["spec"], "KEDA sets it"
    scaled = made.ScaledObject["spec"]
    assert scaled["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "orders"}
    triggers = [
        (each["type"], each["metadata"]["consumerGroup"], each["metadata"]["topic"]) for each in scaled["triggers"]
    ]
    assert {each["metadata"]["lagThreshold"] for each in scaled["triggers"]} == {"2000000"}
    assert triggers == [("kafka", "orders", "orders"), ("kafka", "orders", "returns")]
    assert all(isinstance(text, str) for each in scaled["triggers"] for text in each["metadata"].values())


def test_pods_are_replaced_when_a_setting_changes(rendered):
    def mark(threads: int = 2, **settings) -> str:
        made = rendered(NEEDED | {"threads": threads, "settings": NEEDED["settings"] | settings}).StatefulSet
        return made["spec"]["template"]["metadata"]["annotations"]["penstock/settings"]

    assert mark() == mark() != mark(**{"commit.interval.ms": 300})
    assert mark() != mark(threads=3)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"settings": {"application.id": "a"}}, "bootstrapServers"),
        (NEEDED | {"settings": {}}, "application.id"),
        (NEEDED | {"replica": 3}, "replica"),
        (NEEDED | {"settings": {"application.id": "a", "state.dir": "/x"}}, "state.dir"),
        (NEEDED | {"settings": {"application.id": "a", "client.id": "x"}}, "client.id"),
        (NEEDED | {"autoscaling": {"enabled": True}}, "topics"),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(tmp_path, values, named):
    done = helm("template", "orders", str(CHART), values=values, folder=tmp_path)
    assert done.returncode != 0
    assert named in done.stderr


def test_the_chart_has_the_version_of_the_package():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == penstock.__version__.replace("rc", "-rc.")


def test_compose_starts_what_there_is():
    compose = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    app, kafka = compose["services"]["app"], compose["services"]["kafka"]
    assert (ROOT / "deploy" / app["build"]["context"] / app["build"]["dockerfile"]).resolve().exists()
    source, mounted, _ = app["volumes"][0].split(":")
    assert (ROOT / "deploy" / source).exists()
    assert app["command"][1] == f"{Path(mounted).name}:topology"
    settings = [app["command"][at + 1] for at, word in enumerate(app["command"]) if word == "--config"]
    StreamsConfig({"application.id": "a", **dict(each.split("=", 1) for each in settings)})
    assert kafka["image"].rpartition(":")[2].count(".") == 2, "a version of three numbers"
    assert app["read_only"] is True
    (volume,) = kafka["volumes"]
    assert kafka["environment"]["KAFKA_LOG_DIRS"] == volume.rpartition(":")[2]


def test_what_the_image_installs_is_pinned_and_what_the_package_requires():
    packaging = pytest.importorskip("packaging.requirements", reason="packaging is not installed: make setup")
    lines = (ROOT / "deploy" / "requirements.txt").read_text().splitlines()
    pinned = dict(line.split(" ")[0].split("==") for line in lines if line and line[0] not in "# ")
    assert sum(line.lstrip().startswith("--hash=sha256:") for line in lines) >= len(pinned)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    texts = [*project["dependencies"], *extras["kafka"], *extras["query"], *extras["schemas"], *extras["ui"]]
    for text in texts:
        needed = packaging.Requirement(text)
        assert needed.specifier.contains(pinned[needed.name.lower().replace("_", "-")]), text
