"""The agent's manifests: sound YAML, least privilege, and all the rights that the code uses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rte.agent import daemon
from rte.agent.settings import AgentSettings
from rte.cli import main
from rte.kube.resources import LEASES, NODES, NRTS, PODS
from rte.nrt import writer
from rte.placement.groups import allocation
from rte.scheduler.settings import SchedulerSettings

ROOT = Path(__file__).parents[3]
#: What ``namespace:`` of an overlay must not move.
APART = "apart/agent"
FOLDERS = (
    "agent", "admission", "crd", "default", "monitoring", "nri", "scheduler", APART,
    "apart/scheduler", "elsewhere", "elsewhere/mine",
)  # fmt: skip
NAMESPACE = "rte-system"


def documents(folder: str, files: str = "*.yaml") -> list[dict[str, Any]]:
    return [
        document
        for path in sorted((ROOT / "manifests" / folder).glob(files))
        for document in yaml.safe_load_all(path.read_text())
        if document
    ]


def find(kind: str, folder: str = "agent", name: str = "") -> dict[str, Any]:
    (found,) = (
        item
        for item in documents(folder)
        if item["kind"] == kind and name in ("", item["metadata"]["name"])
    )
    return found


@pytest.fixture
def pod_spec() -> dict[str, Any]:
    return find("DaemonSet")["spec"]["template"]["spec"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_file_is_listed_by_its_kustomization_and_every_listed_one_exists(folder: str):
    here = ROOT / "manifests" / folder
    kustomization = yaml.safe_load((here / "kustomization.yaml").read_text())
    listed = {*kustomization.get("resources", ()), *kustomization.get("components", ())}
    assert all((here / name).exists() for name in listed)
    files = {path.name for path in here.glob("*.yaml")} - {"kustomization.yaml"}
    assert files <= listed


def rights() -> set[tuple[str, str, str]]:
    """(group, resource, verb) that the agent is granted."""
    return {
        (group, resource, verb)
        for kind, folder in (("ClusterRole", "agent"), ("Role", APART))
        for rule in find(kind, folder)["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_rights_are_exactly_those_that_the_code_uses():
    used = {
        # stores: get, create and update; follow: list and watch
        *((NRTS.group, NRTS.plural, verb) for verb in ("get", "create", "update", "list", "watch")),
        (NODES.group, NODES.plural, "get"),  # daemon._get_node
        (NODES.group, f"{NODES.plural}/configz", "get"),  # kube.node.read_configz
        *((PODS.group, PODS.plural, verb) for verb in ("list", "watch")),  # follow.follow_pods
        *((LEASES.group, LEASES.plural, verb) for verb in ("create", "patch")),  # kube.lease
    }
    assert rights() == used


def test_no_right_is_a_wildcard_and_leases_are_those_of_one_namespace():
    assert not any("*" in part for right in rights() for part in right)
    assert find("Role", APART)["metadata"]["namespace"] == AgentSettings().lease_namespace
    cluster_wide = {
        resource for rule in find("ClusterRole")["rules"] for resource in rule["resources"]
    }
    assert "leases" not in cluster_wide


def test_the_bindings_name_the_daemonsets_account(pod_spec: dict[str, Any]):
    account = find("ServiceAccount")["metadata"]["name"]
    assert pod_spec["serviceAccountName"] == account
    for kind, folder in (("ClusterRoleBinding", "agent"), ("RoleBinding", APART)):
        (subject,) = find(kind, folder)["subjects"]
        assert (subject["name"], subject["namespace"]) == (account, NAMESPACE)


def test_the_containers_have_no_privilege_and_a_root_file_system_they_cannot_write(
    pod_spec: dict[str, Any],
):
    for container in (*pod_spec["initContainers"], *pod_spec["containers"]):
        context = container["securityContext"]
        assert context["privileged"] is False
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert all(mount["readOnly"] for mount in container["volumeMounts"])
    assert not any(pod_spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC"))


def test_all_that_is_not_the_agents_is_covered(pod_spec: dict[str, Any]):
    (agent,) = pod_spec["containers"]
    covered = {m["mountPath"] for m in agent["volumeMounts"] if m["name"] == "nothing"}
    names = ("checkpoints", "pki", "plugins", "plugins_registry", "pods", "pods-api")
    assert covered == {f"/var/lib/kubelet/{name}" for name in names}


def test_the_place_of_a_cover_that_older_kubelets_lack_is_made_on_the_host(
    pod_spec: dict[str, Any],
):
    """A volume is made for the pod that has a container which mounts it."""
    (init,) = pod_spec["initContainers"]
    (mount,) = init["volumeMounts"]
    (volume,) = (each for each in pod_spec["volumes"] if each["name"] == mount["name"])
    path = {"path": "/var/lib/kubelet/pods-api", "type": "DirectoryOrCreate"}
    assert volume["hostPath"] == path
    (agent,) = pod_spec["containers"]
    assert mount["name"] not in {each["name"] for each in agent["volumeMounts"]}


def test_the_namespace_of_the_agents_leases_holds_nothing_else(pod_spec: dict[str, Any]):
    namespace = AgentSettings().lease_namespace
    assert namespace != NAMESPACE
    assert f"--lease-namespace={namespace}" in pod_spec["containers"][0]["args"]
    assert SchedulerSettings().agent_namespace == namespace
    scheduler = find("Deployment", "scheduler")["spec"]["template"]["spec"]["containers"][0]
    assert f"--agent-namespace={namespace}" in scheduler["args"]


def test_windows_nodes_and_virtual_kubelets_get_no_agent(pod_spec: dict[str, Any]):
    affinity = pod_spec["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    wanted = {(item["key"], item["operator"], *item["values"]) for item in term["matchExpressions"]}
    assert ("kubernetes.io/os", "In", "linux") in wanted
    assert ("type", "NotIn", "virtual-kubelet") in wanted


def test_probes_and_limits_are_set(pod_spec: dict[str, Any]):
    (agent,) = pod_spec["containers"]
    port = int(AgentSettings().metrics_listen.rpartition(":")[2])
    assert agent["ports"] == [{"name": "metrics", "containerPort": port}]
    assert agent["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert agent["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert {"requests", "limits"} <= agent["resources"].keys()
    # A whole CPU would make the agent's container exclusive and no reference for the shared pool.
    assert agent["resources"]["requests"]["cpu"].endswith("m")


def test_the_arguments_are_flags_of_rte_run(
    pod_spec: dict[str, Any], capsys: pytest.CaptureFixture[str]
):
    (agent,) = pod_spec["containers"]
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    known = capsys.readouterr().out
    for argument in agent["args"][1:]:
        assert argument.partition("=")[0] in known
    assert agent["args"][0] == "run"


def test_the_policy_guards_the_agents_account_and_what_it_writes(pod_spec: dict[str, Any]):
    spec = find("ValidatingAdmissionPolicy", "admission")["spec"]
    expression = spec["matchConditions"][0]["expression"]
    pattern = re.search("matches\\('(.*)'\\)", expression)
    assert pattern
    account = f"system:serviceaccount:{NAMESPACE}:{pod_spec['serviceAccountName']}"
    assert re.fullmatch(pattern[1], account)
    assert not re.fullmatch(pattern[1], f"{account}-2")
    guarded = {
        (rule["apiGroups"][0], rule["resources"][0]): set(rule["operations"])
        for rule in spec["matchConstraints"]["resourceRules"]
    }
    assert guarded == {
        (NRTS.group, NRTS.plural): {"CREATE", "UPDATE", "DELETE"},
        (LEASES.group, LEASES.plural): {"CREATE", "UPDATE", "DELETE"},
    }
    binding = find("ValidatingAdmissionPolicyBinding", "admission")["spec"]
    assert binding["validationActions"] == ["Deny"]


def test_the_policy_of_grants_is_about_every_way_to_write_a_pod_and_asks_for_the_schedulers_right():
    """Pods, their status and bindings; and no name of a namespace or account, so pools agree."""
    spec = find("ValidatingAdmissionPolicy", "apart/scheduler")["spec"]
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert rule["resources"] == ["pods", "pods/*", "bindings"]
    assert set(rule["operations"]) == {"CREATE", "UPDATE"}
    assert "matchConditions" not in spec
    variables = {each["name"]: each["expression"] for each in spec["variables"]}
    assert allocation.ANNOTATION in variables["written"]
    assert f"'{allocation.CONDITION}'" in variables["recorded"]
    group, resource, verb = re.findall(r"'([^']*)'", variables["isScheduler"])
    rules = find("ClusterRole", "scheduler", "rte-scheduler")["rules"]
    assert {"apiGroups": [group], "resources": [resource], "verbs": [verb]} in rules
    assert find("ValidatingAdmissionPolicyBinding", "apart/scheduler")["spec"] == {
        "policyName": "rte-scheduler-writes",
        "validationActions": ["Deny"],
    }


def test_the_runtimes_plugin_may_read_pods_and_nothing_else():
    (rule,) = find("ClusterRole", "nri")["rules"]
    assert rule == {"apiGroups": [PODS.group], "resources": [PODS.plural], "verbs": ["get"]}
    account = find("DaemonSet", "nri")["spec"]["template"]["spec"]["serviceAccountName"]
    (subject,) = find("ClusterRoleBinding", "nri")["subjects"]
    assert subject["name"] == find("ServiceAccount", "nri")["metadata"]["name"] == account


def test_what_lies_apart_is_all_that_an_overlay_leaves_where_it_is():
    """One component deletes it, so that the rest may move; the overlay adds it again."""
    patches = documents("movable", "kustomization.yaml")[0]["patches"]
    left_out = {
        (each["kind"], each["metadata"]["name"], each["metadata"].get("namespace"))
        for each in (yaml.safe_load(patch["patch"]) for patch in patches)
    }
    apart = {
        (each["kind"], each["metadata"]["name"], each["metadata"].get("namespace"))
        for folder in (APART, "apart/scheduler")
        for each in documents(folder)
        if each["kind"] != "Kustomization"
    }
    assert left_out == apart


def test_the_crd_serves_both_versions_and_stores_the_newer():
    spec = find("CustomResourceDefinition", "crd")["spec"]
    versions = {
        version["name"]: (version["served"], version["storage"]) for version in spec["versions"]
    }
    assert versions == {"v1alpha1": (True, False), "v1alpha2": (True, True)}
    assert (spec["group"], spec["names"]["plural"], spec["scope"]) == (
        NRTS.group,
        NRTS.plural,
        "Cluster",
    )


def test_the_printer_columns_read_attributes_that_are_published():
    spec = find("CustomResourceDefinition", "crd")["spec"]
    columns = spec["versions"][1]["additionalPrinterColumns"]
    assert [column["name"] for column in columns] == ["Policy", "Scope", "Free CPUs", "Age"]
    assert writer.FREE_CPUS_ATTRIBUTE in columns[2]["jsonPath"]


def test_the_podmonitor_selects_the_agents_pods():
    labels = find("DaemonSet")["spec"]["template"]["metadata"]["labels"]
    spec = find("PodMonitor", "monitoring", "rte-agent")["spec"]
    assert spec["selector"]["matchLabels"] == labels
    assert labels == daemon.LEASE_LABELS
