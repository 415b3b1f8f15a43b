"""The Helm chart renders what the kustomize trees render."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest
import yaml

from tests.cluster import builder
from tests.cluster.test_layouts import LAYOUTS, ROOT, render

pytestmark = pytest.mark.cluster

CHART = ROOT / "manifests" / "chart"


def template(**values: Any) -> list[dict[str, Any]]:
    """The chart's objects; raises with helm's own words."""
    command = [
        builder.helm(), "template", "rte", CHART, "--namespace", "rte-system",
        "--kube-version", "1.37.1", "--values", "-",
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
        found[item["kind"], meta.get("namespace", ""), meta["name"]] = item
    return found


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


def test_components_are_the_same(tmp_path: Any) -> None:
    names = (
        "admission", "kueue", "monitoring", "moves", "network", "kubelet-certificate", "selinux",
    )  # fmt: skip
    everything = {
        "resources": ["../agent", "../scheduler"],
        "components": [f"../{name}" for name in names],
    }
    switched_on = {name: {"enabled": True} for name in ("monitoring", "networkPolicy", "selinux")}

    scheduler = {"enabled": True, "kueue": {"enabled": True}, "moveEvery": 60}
    chart = template(createNamespace=True, scheduler=scheduler, **switched_on)

    assert normal(chart) == normal(_render_beside(everything))


def _render_beside(kustomization: dict[str, Any]) -> list[dict[str, Any]]:
    """Render a kustomization that lies in manifests/ for the moment."""
    folder = ROOT / "manifests" / "everything"
    folder.mkdir()
    try:
        (folder / "kustomization.yaml").write_text(json.dumps(kustomization))
        return render("everything")
    finally:
        (folder / "kustomization.yaml").unlink(missing_ok=True)
        folder.rmdir()


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
