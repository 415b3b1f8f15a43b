"""What keeps workloads up and doors shut names what it is about, and leaves nothing out."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rte import __version__
from rte.cli import balloon
from rte.cli.inputs import KINDS
from rte.scheduler.shell.feeds import COLLECTIONS
from tests.unit.manifests.test_agent_manifests import ROOT, documents, find

#: Workload -> folders whose manifests make it, and what changes it.
WORKLOADS = {"rte-agent": ("agent",), "rte-scheduler": ("scheduler", "extender")}


def labels(name: str) -> dict[str, str]:
    kind = {"rte-agent": "DaemonSet", "rte-scheduler": "Deployment"}[name]
    found: dict[str, str] = find(kind, WORKLOADS[name][0])["spec"]["template"]["metadata"]["labels"]
    return found


def ports(name: str) -> set[str]:
    """Names of the ports that the workload opens, in every variant of it."""
    return {
        port["name"]
        for folder in WORKLOADS[name]
        for document in documents(folder)
        if document["kind"] in ("DaemonSet", "Deployment")
        for container in document["spec"]["template"]["spec"]["containers"]
        for port in container.get("ports", ())
    }


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_network_policy_opens_the_ports_that_are_there_and_no_other(name: str) -> None:
    spec = find("NetworkPolicy", "network", name)["spec"]
    assert spec["podSelector"]["matchLabels"].items() <= labels(name).items()
    assert spec["policyTypes"] == ["Ingress"]
    opened = {port["port"] for rule in spec["ingress"] for port in rule["ports"]}
    assert opened == ports(name)
    # kube-scheduler is on the network of a node, which no selector names.
    prometheus = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    for rule in spec["ingress"]:
        (port,) = rule["ports"]
        anybody = port["port"] == "extender"
        assert rule.get("from") == (None if anybody else [{"namespaceSelector": prometheus}])


def test_a_drain_takes_one_of_the_schedulers_replicas_which_lie_apart() -> None:
    budget, deployment = (
        find("PodDisruptionBudget", "scheduler")["spec"],
        find("Deployment", "scheduler")["spec"],
    )
    assert budget["selector"] == deployment["selector"]
    assert budget["maxUnavailable"] < deployment["replicas"]
    affinity = deployment["template"]["spec"]["affinity"]["podAntiAffinity"]
    (apart,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert apart["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert apart["podAffinityTerm"]["labelSelector"] == deployment["selector"]


def test_of_an_extender_one_replica_is_ready_and_nothing_waits_for_the_other() -> None:
    """A rolling update, or a drain within a budget, would wait for the other one for ever."""
    (patch,) = documents("extender", "patch.yaml")
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["port"] == "extender"
    assert patch["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": "100%", "maxSurge": 0}
    (kustomization,) = documents("extender", "kustomization.yaml")
    deleted = [
        yaml.safe_load(item["patch"])
        for item in kustomization["patches"]
        if "$patch" in item.get("patch", "")
    ]
    budget = find("PodDisruptionBudget", "scheduler")
    assert [(item["kind"], item["metadata"]) for item in deleted] == [
        (budget["kind"], budget["metadata"])
    ]


def test_gkes_quota_admits_the_priority_classes_of_the_workloads() -> None:
    spec = find("ResourceQuota", "layouts/gke")["spec"]
    (scope,) = spec["scopeSelector"]["matchExpressions"]
    assert scope["scopeName"] == "PriorityClass"
    used = {
        find(kind, folder)["spec"]["template"]["spec"]["priorityClassName"]
        for kind, folder in (("DaemonSet", "agent"), ("Deployment", "scheduler"))
    }
    assert used == set(scope["values"])


def test_openshifts_constraints_allow_what_the_agent_asks_for_and_no_more() -> None:
    allowed = find("SecurityContextConstraints", "layouts/openshift")
    spec: dict[str, Any] = find("DaemonSet")["spec"]["template"]["spec"]
    kinds = {next(key for key in volume if key != "name") for volume in spec["volumes"]}
    # The projected one is the token's, which the API server adds.
    assert kinds | {"projected"} <= set(allowed["volumes"])
    for container in (*spec["initContainers"], *spec["containers"]):
        asked = container["securityContext"]
        assert asked["capabilities"]["drop"] == allowed["requiredDropCapabilities"]
        assert asked["readOnlyRootFilesystem"] is allowed["readOnlyRootFilesystem"] is True
        assert asked["privileged"] is allowed["allowPrivilegedContainer"] is False
    for right in ("HostNetwork", "HostPID", "HostIPC", "HostPorts", "PrivilegeEscalation"):
        assert allowed[f"allow{right}"] is False
    role = find("Role", "layouts/openshift")
    assert role["rules"][0]["resourceNames"] == [allowed["metadata"]["name"]]
    (subject,) = find("RoleBinding", "layouts/openshift")["subjects"]
    assert subject["name"] == spec["serviceAccountName"]


def test_who_makes_way_for_a_restart_may_read_what_the_command_reads_and_no_more() -> None:
    role = find("ClusterRole", "restart")
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    read = {(COLLECTIONS[name].group, COLLECTIONS[name].plural, "list") for name in KINDS}
    writes = {("", "nodes", "patch"), ("", "pods/eviction", "create")}
    assert read | writes <= granted
    assert granted - read - writes == {("scheduling.x-k8s.io", "workloads", "list")}


def test_the_job_that_makes_way_runs_as_that_account() -> None:
    job = yaml.safe_load((ROOT / "manifests/restart/job.yaml").read_text())
    account = find("ServiceAccount", "restart")["metadata"]
    pod = job["spec"]["template"]["spec"]
    assert (job["metadata"]["namespace"], pod["serviceAccountName"]) == (
        account["namespace"],
        account["name"],
    )
    assert pod["containers"][0]["args"] == ["drain", "NODE", "--apply"]
    assert pod["containers"][0]["image"] == f"rte-scheduler:{__version__}"


def test_who_makes_balloons_may_read_what_the_command_reads_and_write_in_its_namespace() -> None:
    granted = {
        (group, resource, verb)
        for rule in find("ClusterRole", "autoscaling")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    read = {(COLLECTIONS[name].group, COLLECTIONS[name].plural, "list") for name in KINDS}
    assert read <= granted
    assert granted - read == {("scheduling.x-k8s.io", "workloads", "list")}
    role = find("Role", "autoscaling")
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete"]}
    ]
    pod = find("CronJob", "autoscaling")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == find("ServiceAccount", "autoscaling")["metadata"]["name"]
    assert pod["containers"][0]["args"] == ["balloon", "--apply"]
    assert pod["containers"][0]["image"] == f"rte-scheduler:{__version__}"


def test_balloons_matter_less_than_any_pod_and_more_than_what_autoscalers_leave_out() -> None:
    """The cluster autoscaler's --expendable-pods-priority-cutoff is -10 by default."""
    found = find("PriorityClass", "autoscaling")
    assert found["metadata"]["name"] == balloon.PRIORITY_CLASS
    assert -10 <= found["value"] < 0
    assert found["preemptionPolicy"] == "Never"
