"""The Helm chart renders what the kustomize trees render; it comes, changes and goes as a whole."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.cluster import agents, builder
from tests.cluster.field import uninstall
from tests.cluster.test_layouts import LAYOUTS, ROOT, render, render_beside

if TYPE_CHECKING:
    from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.cluster

CHART = ROOT / "manifests" / "chart"


def template(**values: Any) -> list[dict[str, Any]]:
    """The chart's objects; raises with helm's own words."""
    command = [
        builder.helm(), "template", "rte", CHART, "--namespace", "rte-system",
        "--kube-version", "1.37.1", "--no-hooks", "--values", "-",
    ]  # fmt: skip
    done = subprocess.run(
        command, input=json.dumps(values), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ValueError(done.stderr)
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def normal(objects: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """By kind, namespace and name; lists that Kubernetes merges by a key are sorted by it."""
    found = {}
    for item in objects:
        pod = item.get("spec", {}).get("template", {}).get("spec")
        for container in pod["containers"] if pod else ():
            for key, by in (("volumeMounts", "mountPath"), ("args", None), ("ports", "name")):
                if key in container:
                    container[key].sort(key=lambda entry, by=by: entry[by] if by else entry)
        if pod and "volumes" in pod:
            pod["volumes"].sort(key=lambda volume: volume["name"])
        if "rules" in item:
            item["rules"].sort(key=json.dumps)
        meta = item["metadata"]
        meta.get("annotations", {}).pop("helm.sh/resource-policy", None)
        if meta.get("annotations") == {}:
            del meta["annotations"]
        found[item["kind"], meta.get("namespace", ""), meta["name"]] = item
    return found


CLUSTER_WIDE = (
    "clusterroles", "clusterrolebindings", "validatingadmissionpolicies",
    "validatingadmissionpolicybindings", "namespaces",
)  # fmt: skip
NAMESPACED = (
    "roles", "rolebindings", "serviceaccounts", "deployments", "daemonsets", "configmaps",
    "poddisruptionbudgets", "networkpolicies", "secrets", "services",
)  # fmt: skip
EVERYTHING = (
    "scheduler.enabled=true", "scheduler.kueue.enabled=true", "scheduler.moveEvery=60",
    "nri.enabled=true", "networkPolicy.enabled=true",
)  # fmt: skip


def there(cluster: Cluster) -> set[str]:
    """Names of all objects of the kinds that the chart makes, but those that come and go."""
    names = cluster.kubectl("get", ",".join(CLUSTER_WIDE), "-o", "name").split()
    line = "{range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}{'\\n'}{end}"
    listed = cluster.kubectl("get", ",".join(NAMESPACED), "-A", "-o", f"jsonpath={line}").split()
    return {name for name in (*names, *listed) if "kube-root-ca.crt" not in name}


def helm(cluster: Cluster, *words: str) -> None:
    """Run helm; raises with its own words."""
    command = [builder.helm(), *words, "--kubeconfig", cluster.kubeconfig]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_two_releases_come_change_go_back_and_leave_nothing(cluster: Cluster) -> None:
    """A release of agents and scheduler, and a scheduler more beside it."""
    uninstall(cluster)  # what other tests have applied would be in the way
    agents.install_crd(cluster)
    before = there(cluster)
    release = ("rte", str(CHART), "--namespace=rte-chart")
    other = ("numa", str(CHART), "--namespace=rte-chart", "--set=agent.enabled=false")
    flags = [f"--set={value}" for value in EVERYTHING]

    helm(cluster, "install", *release, "--create-namespace", *flags)
    first = there(cluster)
    helm(cluster, "install", *other, "--set=leaseNamespace=rte-agents", *flags)
    helm(cluster, "uninstall", "numa", "--namespace=rte-chart")
    assert there(cluster) == first

    helm(cluster, "upgrade", *release, "--set=leaseNamespace=elsewhere")
    changed = there(cluster)
    assert {"Role/elsewhere/rte-agent", "namespace/rte-agents"} <= changed
    assert "Role/rte-agents/rte-agent" not in changed
    helm(cluster, "rollback", "rte", "1", "--namespace=rte-chart")
    kept = {name for name in there(cluster) if "elsewhere" in name}
    revisions = {name for name in there(cluster) if "sh.helm.release" in name}
    assert there(cluster) - kept - revisions == {
        name for name in first if "sh.helm.release" not in name
    }

    helm(cluster, "uninstall", "rte", "--namespace=rte-chart")
    # What a change of the Lease namespace leaves for the way back, and what Helm was told to make.
    cluster.kubectl("delete", "namespace", "elsewhere", "rte-chart")
    cluster.kubectl("wait", "--for=delete", "namespace/rte-agents", "--timeout=60s")
    assert there(cluster) == before


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_the_agent_is_the_same_on_every_layout(layout: str) -> None:
    chart = template(layout=layout, createNamespace=True)

    assert normal(chart) == normal(render(f"layouts/{layout}"))


@pytest.mark.parametrize("extender", [False, True])
def test_the_scheduler_is_the_same_alone_and_as_an_extender(extender: bool) -> None:
    chart = template(agent={"enabled": False}, scheduler={"enabled": True, "extender": extender})

    assert normal(chart) == normal(render("extender" if extender else "scheduler"))


def test_the_plugin_that_pins_is_the_same() -> None:
    chart = template(agent={"enabled": False}, nri={"enabled": True})

    assert normal(chart) == normal(render("nri"))


def test_components_are_the_same() -> None:
    names = (
        "admission", "kueue", "monitoring", "moves", "network", "no-device-plugins",
        "kubelet-certificate", "selinux",
        "metrics-tls",
    )  # fmt: skip
    everything = {
        "resources": ["../agent", "../scheduler"],
        "components": [f"../{name}" for name in names],
    }
    switched_on = {
        name: {"enabled": True} for name in ("monitoring", "networkPolicy", "selinux", "metricsTLS")
    }

    scheduler = {"enabled": True, "kueue": {"enabled": True}, "moveEvery": 60}
    chart = template(
        createNamespace=True, scheduler=scheduler, agent={"devicePlugins": False}, **switched_on
    )

    assert normal(chart) == normal(render_beside(everything))


def test_the_scheduler_reads_the_scores_of_the_values() -> None:
    """A change of them is a change of the pods, so that they read them anew."""
    seen = []
    for weight in (1, 2):
        scores = {"profiles": {"rte-scheduler": {"weights": {"ImageLocality": weight}}}}
        objects = normal(template(scheduler={"enabled": True, "scores": scores}))
        file = objects["ConfigMap", "rte-system", "rte-scheduler-scores"]["data"]["scores.yaml"]
        assert yaml.safe_load(file) == scores
        pod = objects["Deployment", "rte-system", "rte-scheduler"]["spec"]["template"]
        assert "--scores=/etc/rte/scores/scores.yaml" in pod["spec"]["containers"][0]["args"]
        seen.append(pod["metadata"]["annotations"]["checksum/scores"])
    assert seen[0] != seen[1]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"layout": "minikube"}, "layout"),
        ({"scheduler": {"replicas": 0}}, "replicas"),
        ({"schedulr": {"enabled": True}}, "schedulr"),
        ({"agent": {"extraArgs": "--log-level=debug"}}, "extraArgs"),
    ],
)
def test_a_wrong_value_is_told_by_its_name(values: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        template(**values)


def test_the_chart_brings_the_same_crd() -> None:
    crd = CHART / "crds" / "noderesourcetopologies.yaml"
    assert crd.read_text() == (ROOT / "manifests/crd/noderesourcetopologies.yaml").read_text()


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    import rte

    assert chart["appVersion"] == chart["version"] == rte.__version__
