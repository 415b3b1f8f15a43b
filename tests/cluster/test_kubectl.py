"""What users of ``kubectl`` type first has the same outcome here as on a real API server.

The same commands go to both, one after the other. Left out of the comparison is only what a server
or a controller invents: UIDs, versions, times, and the ends of generated names.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from rte.sim import controllers
from rte.sim.apiserver import API, APIServer
from rte.sim.demo.cluster import crd
from tests.cluster import agents, processes
from tests.cluster.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent
NAMESPACE = "first-commands"
REPOSITORY = HERE.parent.parent

DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "app", "labels": {"team": "a"}},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "app"}},
        "template": {
            "metadata": {"labels": {"app": "app"}},
            "spec": {
                "automountServiceAccountToken": False,
                "containers": [
                    {
                        "name": "main",
                        "image": "nginx:1",
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                        "ports": [{"containerPort": 80}],
                        "resources": {"requests": {"cpu": "500m"}},
                    }
                ],
            },
        },
    },
}  # fmt: skip
CONFIG: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "notes"},
    "data": {"a": "1", "b": "2"},
}

#: ``{dir}`` is the folder with the manifests.
CREATING = """
create namespace first-other
create namespace first-other
create configmap c --from-literal=a=1 --from-literal=b=2
create configmap c --from-literal=a=1
create secret generic s --from-literal=user=me
create serviceaccount robot
create deployment web --image=nginx:1 --replicas=2
create deployment web --image=nginx:1
create job once --image=busybox:1 -- sleep 5
create priorityclass first-urgent --value=1000
create poddisruptionbudget guard --selector=app=web --min-available=1
create deployment Bad_Name --image=nginx
create nonsense x
run one --image=nginx:1
run one --image=nginx:1
run two --image=busybox:1 --restart=Never --labels=a=b,c=d --env=X=1 -- sleep 30
run three --image=nginx:1 --dry-run=client -o yaml
run three --image=nginx:1 --dry-run=server -o name
create deployment dry --image=nginx:1 --dry-run=server -o jsonpath={.spec.strategy}
""".strip().splitlines()
READING = """
get pods
get pods one two -o wide
get pod one -o name
get pods -l a=b
get pods --field-selector=status.phase=Pending -o name
get pods nothing
get deployments,replicasets,jobs
get deploy web -o wide
get job once -o wide
get all
get configmap c -o yaml
get secret s -o json
get sa robot -o yaml
get deploy web -o yaml
get job once -o yaml
get pod two -o yaml
get pdb guard
get priorityclass first-urgent
get nrt
get noderesourcetopologies.topology.node.k8s.io -o wide
get nrt nothing
describe pod one
describe deployment web
describe configmap c
describe job once
describe replicaset
logs one
logs nothing
exec one -- ls
top pod
top node
rollout history deployment web
auth can-i create pods
""".strip().splitlines()
CHANGING = """
label pod one tier=front
label pod one tier=back
label pod one tier=back --overwrite
label pod one tier-
label pods --all x=y
annotate pod one note=hello
annotate pod one note-
scale deployment web --replicas=3
scale deployment web --replicas=2 --current-replicas=7
scale deployment nothing --replicas=3
set image deployment/web nginx=nginx:2
rollout pause deployment web
rollout resume deployment web
rollout undo deployment web
rollout restart deployment nothing
patch deployment web -p {"spec":{"replicas":1}}
patch deployment web -p {"spec":{"selector":{"matchLabels":{"x":"y"}}}}
patch configmap c --type=merge -p {"data":{"a":"9","b":null}}
patch configmap c --type=json -p [{"op":"remove","path":"/data/none"}]
set env deployment/web A=1
set resources deployment/web --limits=cpu=1,memory=1Gi
""".strip().splitlines()
APPLYING = """
apply -f {dir}/deployment.yaml
apply -f {dir}/deployment.yaml
apply -f {dir}/deployment-2.yaml
diff -f {dir}/deployment-2.yaml
apply -f {dir}/unknown.yaml
apply -f {dir}/unknown.yaml --validate=false
apply --server-side -f {dir}/config.yaml
apply --server-side -f {dir}/config.yaml
apply --server-side --field-manager=other -f {dir}/config-2.yaml
apply --server-side --field-manager=other --force-conflicts -f {dir}/config-2.yaml
apply --server-side -f {dir}/config.yaml
apply --server-side -f {dir}/deployment.yaml
apply --server-side --force-conflicts -f {dir}/deployment.yaml
apply --server-side -f {dir}/deployment-2.yaml
apply --server-side -f {dir}/unknown.yaml
scale deployment app --replicas=7
apply --server-side -f {dir}/deployment-2.yaml
apply --server-side --dry-run=server -f {dir}/config-3.yaml
replace -f {dir}/config-3.yaml
apply -f {dir}/nrt.yaml
apply --server-side -f {dir}/nrt.yaml
apply -f {dir}/bad-nrt.yaml
get deployment app -o jsonpath={.spec.replicas}{.spec.template.spec.containers}
get configmap notes -o jsonpath={.data}
get nrt first-node -o jsonpath={.zones}{.topologyPolicies}
get nrt
""".strip().splitlines()
WORKING = """
apply -f {dir}/daemons.yaml
get ds
get ds every -o yaml
describe ds every
apply --server-side -f {dir}/daemons.yaml
get ds every -o jsonpath={.metadata.annotations}
rollout status ds every --timeout=1s
apply -f {dir}/numbered.yaml
get statefulsets
get statefulset db -o jsonpath={.spec}
get pods -l app=db
describe statefulset db
scale statefulset db --replicas=1
create job now --image=busybox:1 -- date
get job now
get cronjobs,ingresses,hpa,rc,limitranges
get csr
create role r --verb=get --resource=pods
create rolebinding rb --role=r --user=u
get roles
get rolebindings
auth can-i list pods
get all -l app=db
delete daemonset every
delete statefulset db
delete job now
delete role r
delete rolebinding rb
""".strip().splitlines()
EXPLAINING = """
explain daemonset.spec.updateStrategy
explain statefulset.spec
explain pod
explain pod.spec.nodeName
explain deployment.spec.strategy.rollingUpdate
explain job.spec
explain nrt
explain nrt.zones
explain noderesourcetopology.zones.resources --recursive
explain pod.spec.nothing
explain nothing
explain resourceclaim.spec.devices
api-versions --help
""".strip().splitlines()
ENDING = """
delete pod one
delete pod one
delete pod two --grace-period=0 --force
delete job once
delete deployment web
delete deployment app --cascade=orphan
delete configmap c notes
delete nrt first-node
delete -f {dir}/unknown.yaml
delete namespace first-other
delete priorityclass first-urgent
""".strip().splitlines()


@dataclass
class Side:
    """One cluster, as its user sees it."""

    name: str
    kubectl: Path
    kubeconfig: Path
    manifests: Path

    def run(self, line: str) -> tuple[int, str]:
        words = [word.replace("{dir}", str(self.manifests)) for word in line.split()]
        done = subprocess.run(
            [self.kubectl, f"--kubeconfig={self.kubeconfig}", *words],
            capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, "HOME": str(self.kubeconfig.parent / self.name)},
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    def is_observed(self) -> bool:
        """Whether each Deployment is as its controller has seen it."""
        found = json.loads(self.run("get deployments -o json")[1])["items"]
        return all(
            each["metadata"]["generation"] == each["status"].get("observedGeneration")
            for each in found
        )


_INVENTED = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}"), "UID"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"\b\w{3}, \d\d \w{3} \d{4} [\d:]+ \+0000"), "TIME"),
    (re.compile(r'resourceVersion"?: "?\d+"?'), "VERSION"),
    (re.compile(r"\b(web|app)-[a-z0-9]{5,10}-[a-z0-9]{5}\b"), r"\1-HASH-POD"),
    (re.compile(r"\b(web|app)-[a-z0-9]{5,10}\b(?!-)"), r"\1-HASH"),
    (re.compile(r"pod-template-hash([=:\"]+ ?\"?)[a-z0-9]+"), r"pod-template-hash\1HASH"),
    (re.compile(r"\b(once|now)-[a-z0-9]{5}\b"), r"\1-POD"),
    (re.compile(r"(?<=[\s(])(<invalid>|\d+[smh](\d+[smh])?)(?= ago|[\s)]|$)", re.MULTILINE), "AGE"),
    (re.compile(r"\(x\d+ over AGE\)"), ""),
    (re.compile(r"/tmp/(LIVE|MERGED)-\d+"), r"/tmp/\1"),
    (re.compile(r"^[EIW]\d{4} .*$", re.MULTILINE), ""),
    (re.compile(r"[ \t]+"), " "),
    (re.compile(r"-{4,}"), "----"),
)


def comparable(text: str) -> list[str]:
    """What both must say; of lines that controllers or maps bring in any order, the set."""
    for pattern, word in _INVENTED:
        text = pattern.sub(word, text)
    return sorted({line.strip() for line in text.splitlines() if line.strip()})


@pytest.fixture(scope="module")
def embedded_url() -> Iterator[str]:
    """The embedded API server and its controllers, in a thread of their own."""
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    server = APIServer(API())
    server.api.create("customresourcedefinitions", crd())

    async def serve() -> None:
        async with server:
            work = asyncio.create_task(controllers.run(server.api))
            ready.set()
            await stop.wait()
            work.cancel()
            await asyncio.wait([work])

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    yield server.url
    loop.call_soon_threadsafe(stop.set)
    thread.join(30)
    loop.close()


@pytest.fixture(scope="module")
def sides(
    embedded_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Side, Side]]:
    """A real cluster and the embedded one, each with a namespace for these commands.

    A cluster of its own, for what others have applied would be seen.
    """
    cluster = Cluster.start()
    try:
        yield _sides(cluster, embedded_url, tmp_path_factory)
    finally:
        cluster.stop()


def _sides(
    cluster: Cluster, embedded_url: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Side, Side]:
    program = cluster.binaries.path("kubectl")
    agents.install_crd(cluster)
    found = []
    manifests = tmp_path_factory.mktemp("manifests")
    _write_manifests(manifests)
    for name in ("real", "embedded"):
        folder = tmp_path_factory.mktemp(name)
        config = folder / "kubeconfig"
        if name == "real":
            document = yaml.safe_load(cluster.kubeconfig.read_text())
        else:
            document = {
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": embedded_url}}],
                "users": [{"name": "c", "user": {}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            }  # fmt: skip
        document["contexts"][0]["context"]["namespace"] = NAMESPACE
        config.write_text(yaml.safe_dump(document))
        found.append(Side(name, program, config, manifests))
    for side in found:
        assert side.run(f"create namespace {NAMESPACE}")[0] == 0
        processes.wait_until(
            lambda side=side: side.run("get serviceaccount default")[0] == 0, 60, "the account"
        )
        # Tokens are for those who read them: no pod here does.
        no_token = '{"automountServiceAccountToken":false}'
        assert side.run(f"patch serviceaccount default -p {no_token}")[0] == 0
        crds = REPOSITORY / "manifests/crd"
        assert side.run(f"apply --server-side --force-conflicts -k {crds}")[0] == 0
    return found[0], found[1]


def _write_manifests(folder: Path) -> None:
    changed = json.loads(json.dumps(DEPLOYMENT))
    changed["metadata"]["labels"] = {"owner": "b"}
    changed["spec"]["replicas"] = 4
    del changed["spec"]["template"]["spec"]["containers"][0]["env"][1]
    unknown = {**CONFIG, "metadata": {"name": "odd"}, "dta": {"a": "1"}}
    nrt = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "first-node"},
        "topologyPolicies": ["SingleNUMANodeContainerLevel"],
        "zones": [
            {
                "name": "node-0",
                "type": "Node",
                "resources": [
                    {"name": "cpu", "capacity": "4", "allocatable": "3", "available": "2"}
                ],
            }
        ],
    }
    daemons = json.loads(json.dumps(DEPLOYMENT))
    daemons |= {"kind": "DaemonSet", "metadata": {"name": "every"}}
    del daemons["spec"]["replicas"]
    numbered = json.loads(json.dumps(DEPLOYMENT))
    numbered |= {"kind": "StatefulSet", "metadata": {"name": "db"}}
    numbered["spec"] |= {"serviceName": "db", "selector": {"matchLabels": {"app": "db"}}}
    numbered["spec"]["template"]["metadata"]["labels"] = {"app": "db"}
    bad = {**nrt, "metadata": {"name": "first-bad"}, "zones": [{"name": 3}]}
    for name, body in {
        "deployment": DEPLOYMENT, "deployment-2": changed, "config": CONFIG, "unknown": unknown,
        "config-2": {**CONFIG, "data": {"a": "7", "c": "3"}},
        "daemons": daemons, "numbered": numbered,
        "config-3": {**CONFIG, "data": {"d": "4"}}, "nrt": nrt, "bad-nrt": bad,
    }.items():  # fmt: skip
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(body))


def _differences(sides: tuple[Side, Side], lines: list[str], *, settle: float = 0) -> list[str]:
    """Where the two do not say the same; ``settle``: for so long controllers may be at work."""
    out = []
    for line in lines:
        if line.startswith("rollout"):  # of what controllers have already seen
            for side in sides:
                processes.wait_until(side.is_observed, 60, f"the controllers of {side.name}")
        deadline = time.monotonic() + settle
        while True:
            (code, theirs), (got, ours) = (side.run(line) for side in sides)
            wanted, found = comparable(theirs), comparable(ours)
            if (code, wanted) == (got, found) or time.monotonic() > deadline:
                break
            time.sleep(0.3)
        if (code, wanted) != (got, found):
            out += [f"$ kubectl {line}   (exit {code}, embedded {got})"]
            out += [f"    real:     {text}" for text in wanted if text not in found][:20]
            out += [f"    embedded: {text}" for text in found if text not in wanted][:20]
    return out


@pytest.mark.parametrize(
    ("lines", "settle"),
    [
        pytest.param(CREATING, 0, id="create-and-run"),
        pytest.param(READING, 60, id="get-and-describe"),
        pytest.param(CHANGING, 0, id="label-scale-patch"),
        pytest.param(APPLYING, 0, id="apply"),
        pytest.param(EXPLAINING, 0, id="explain"),
        pytest.param(WORKING, 20, id="workloads"),
        pytest.param(ENDING, 0, id="delete"),
    ],
)
def test_first_commands_have_the_same_outcome(
    sides: tuple[Side, Side], lines: list[str], settle: float
) -> None:
    """One after the other: later ones build upon what earlier ones have made."""
    differences = _differences(sides, lines, settle=settle)
    assert not differences, "\n".join(differences)


def test_all_rights_are_listed(sides: tuple[Side, Side]) -> None:
    """``auth can-i --list``: a real server names also what every user may."""
    (_, theirs), (code, ours) = (side.run("auth can-i --list") for side in sides)
    assert code == 0
    wanted, found = comparable(theirs), comparable(ours)
    assert set(found) <= set(wanted)
    assert "*.* [] [] [*]" in found


def test_what_nothing_here_would_act_upon_is_refused_in_one_line(sides: tuple[Side, Side]) -> None:
    command = "create cronjob often --image=i:1 --schedule=1/5"
    _, embedded = sides
    code, said = embedded.run(command)
    assert code == 1
    assert said.strip() == (
        'error: failed to create cronjob: cronjobs.batch "often" is forbidden: no controller for '
        "cronjobs runs here, so nothing would come of it"
    )


def test_the_resources_served_here_are_those_of_the_real_server(sides: tuple[Side, Side]) -> None:
    theirs, ours = (
        {" ".join(row.split()) for row in side.run("api-resources")[1].splitlines()}
        for side in sides
    )
    # A real server serves PodGroups only where their beta is switched on.
    assert {row.split()[0] for row in ours - theirs} == {"podgroups"}


#: Layouts that are whole by themselves and of which a cluster without add-ons knows all kinds.
_MANIFESTS = (
    "crd", "agent", "scheduler", "default", "extender", "kubelet-certificate", "admission", "nri",
    "network", "no-pki", "selinux", "layouts/kubeadm", "layouts/k3s",
)  # fmt: skip


def test_our_own_manifests_pass_a_dry_run_on_both(sides: tuple[Side, Side]) -> None:
    """``--dry-run=client`` and ``=server`` of what the project ships."""
    differences: list[str] = []
    for folder in _MANIFESTS:
        where = REPOSITORY / "manifests" / folder
        # Known difference: kubectl 1.37 cannot patch a definition on its own side that the real
        # server has already ("expected a struct, but received a nil"); with this one it can.
        kinds = ("server",) if folder == "crd" else ("client", "server")
        lines = [f"apply --dry-run={kind} -k {where}" for kind in kinds]
        differences += _differences(sides, lines)
    assert not differences, "\n".join(differences)
