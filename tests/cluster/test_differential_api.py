"""The embedded API server answers the same calls as the real one: same codes, same objects.

A seeded script of calls is played to both. Left out of the comparison is only what a server invents
(UIDs, versions, times, generated names, managedFields) and the wording of refusals of bad input.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import urllib3

from rte import errors
from rte.sim.apiserver import API, APIServer
from rte.sim.demo.cluster import crd
from tests.cluster import processes
from tests.cluster.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.cluster

CALLS = int(os.environ.get("RTE_CALLS", "300"))
SEEDS = [int(text) for text in os.environ.get("RTE_SEEDS", "1").split(",")]
NS = "/api/v1/namespaces/default"
PODS, NODES, CONFIG = f"{NS}/pods", "/api/v1/nodes", f"{NS}/configmaps"
EVENTS = f"{NS}/events"
NEW_EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
NRTS = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
OLD_NRTS = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies"
COLLECTIONS = (PODS, NODES, CONFIG, LEASES, BUDGETS, NRTS)
MERGE, STRATEGIC, JSON = (
    f"application/{kind}-patch+json" for kind in ("merge", "strategic-merge", "json")
)


@dataclass(frozen=True)
class Call:
    """One call; texts may refer to what this server answered before: ``{rv:PATH}``, ``{uid:PATH}``
    and ``{list:PATH}`` (version of the last list), ``{next:PATH}`` (its continue token)."""

    method: str
    path: str
    body: Any = None
    query: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    accept: str = "application/json"

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.query or ''} {json.dumps(self.body)}"


class Side:
    """One server, and what it said before."""

    def __init__(self, url: str, ca: str | None = None, token: str = "") -> None:
        self.url = url
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.pool = urllib3.PoolManager(ca_certs=ca, headers=headers, retries=False, maxsize=4)
        self.said: dict[str, str] = {}

    def perform(self, call: Call) -> tuple[int, Any]:
        def known(text: str) -> str:
            return re.sub(r"\{(\w+:[^}]*)\}", lambda m: self.said.get(m[1], "1"), text)

        body = call.body
        if body is not None and not isinstance(body, str):
            body = json.dumps(body)
        answer = self.pool.request(
            call.method,
            self.url + call.path,
            fields={k: known(v) for k, v in call.query.items()} if body is None else None,
            body=None if body is None else known(body),
            headers={
                **self.pool.headers, "Accept": call.accept, "Content-Type": call.content_type,
            },
            timeout=15,
        )  # fmt: skip
        text = answer.data.decode(errors="replace")
        if call.query.get("watch"):
            return answer.status, [json.loads(line) for line in text.splitlines() if line]
        try:
            parsed = json.loads(text)
        except ValueError:
            return answer.status, text
        self._remember(call, parsed)
        return answer.status, parsed

    def _remember(self, call: Call, answer: Any) -> None:
        metadata = answer.get("metadata") or {}
        if answer.get("kind", "").endswith("List"):
            self.said[f"list:{call.path}"] = metadata.get("resourceVersion", "")
            self.said[f"next:{call.path}"] = metadata.get("continue", "")
        elif metadata.get("name"):
            base = call.path.removesuffix("/status")
            path = f"{base}/{metadata['name']}" if call.method == "POST" else base
            self.said[f"rv:{path}"] = metadata.get("resourceVersion", "")
            self.said[f"uid:{path}"] = metadata.get("uid", "")


_INVENTED = {"uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink"}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def comparable(value: Any, key: str = "") -> Any:
    """What two servers must agree on."""
    if isinstance(value, list):
        items = [comparable(item) for item in value]
        if key == "causes":  # the real server repeats some complaints, in no fixed order
            return sorted({json.dumps(item, sort_keys=True) for item in items})
        return items
    if isinstance(value, dict):
        if value.get("kind") == "Status" and value.get("status") == "Failure":
            return _failure(value)
        out = {k: comparable(v, k) for k, v in value.items() if k not in _INVENTED}
        if "generateName" in out:
            out["name"] = "generated"
        if out.get("continue"):
            out["continue"] = "there is more"
        if key == "spec" and "taints" in out:
            # TaintNodesByCondition: its counterpart, a controller, is not simulated either.
            kept = [t for t in out["taints"] if t["key"] != "node.kubernetes.io/not-ready"]
            out = {k: v for k, v in out.items() if k != "taints"} | (
                {"taints": kept} if kept else {}
            )
        return out
    return "time" if isinstance(value, str) and _TIME.fullmatch(value) else value


def _failure(value: dict[str, Any]) -> dict[str, Any]:
    details = {
        k: v for k, v in (value.get("details") or {}).items() if k not in ("causes", "uid", "name")
    }
    causes = {
        (cause.get("reason"), cause.get("field"))
        for cause in (value.get("details") or {}).get("causes") or ()
    }
    out = {"code": value["code"], "reason": value.get("reason"), "details": details}
    if value["code"] == 422:
        out["causes"] = sorted(causes, key=str)
    if value["code"] in (404, 405, 409):
        out["message"] = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|\(\d+\)", "#", value["message"])
    return out


def unlike(real: Any, embedded: Any, path: str = "") -> Iterator[str]:
    """Where two values differ, one line each."""
    if isinstance(real, dict) and isinstance(embedded, dict):
        for key in sorted({*real, *embedded}):
            yield from unlike(real.get(key, "-"), embedded.get(key, "-"), f"{path}.{key}")
    elif isinstance(real, list | tuple) and isinstance(embedded, list | tuple):
        if len(real) != len(embedded):
            yield f"    {path}: {len(real)} real, {len(embedded)} embedded"
        for index, (left, right) in enumerate(zip(real, embedded, strict=False)):
            yield from unlike(left, right, f"{path}[{index}]")
    elif real != embedded:
        yield f"    {path}: real {json.dumps(real)[:300]}, embedded {json.dumps(embedded)[:300]}"


class Script:
    """Draws calls; small sets of names make them collide."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.kinds: list[tuple[int, Callable[[], Call]]] = [
            (14, self.create_pod), (4, self.bad_pod), (8, self.create_other), (5, self.bad_other),
            (8, self.read), (6, self.listing), (3, self.next_page), (2, self.bad_list),
            (3, self.watch), (10, self.patch_pod), (8, self.patch_node), (5, self.patch_nrt),
            (6, self.patch_status), (5, self.bad_patch), (8, self.replace), (7, self.bind),
            (10, self.delete), (1, self.delete_all), (2, self.evict), (3, self.odd),
            (3, self.event), (2, self.dry_run),
        ]  # fmt: skip

    def draw(self) -> Call:
        weights = [weight for weight, _ in self.kinds]
        return self.random.choices(self.kinds, weights)[0][1]()

    def pick(self, *options: Any) -> Any:
        return self.random.choice(options)

    def name(self, prefix: str = "") -> str:
        return f"{prefix}{self.pick('a', 'b', 'c', 'd')}"

    def pod(self, **more: Any) -> dict[str, Any]:
        r = self.random
        amounts = {"cpu": self.pick("1", "500m", "1500m", "2.5", 2, "1e0"), "memory": self.pick(
            "1Gi", "1024Mi", "0.5Gi", "1.5Gi", "1000000", "128974848")}  # fmt: skip
        container: dict[str, Any] = {
            "name": "c0", "image": self.pick("i", "i:1", "r/i:latest", "r:5000/i"),
            "resources": self.pick(
                {}, {"limits": amounts}, {"requests": amounts}, {"limits": amounts, "requests": {}}
            ),
        }  # fmt: skip
        if r.random() < 0.3:
            container["ports"] = [{"containerPort": self.pick(80, 443)}]
        if r.random() < 0.3:
            container["env"] = [{"name": "A", "value": "b"}, {"name": "N", "valueFrom": {
                "fieldRef": {"fieldPath": "spec.nodeName"}}}]  # fmt: skip
        if r.random() < 0.2:
            container["resources"] = {"limits": {**amounts, "example.com/gpu": "1"}}
        if r.random() < 0.2:
            container["livenessProbe"] = {"httpGet": {"port": 80}, "initialDelaySeconds": 3}
        spec: dict[str, Any] = {
            "serviceAccountName": "default", "automountServiceAccountToken": False,
            "containers": [container],
        }  # fmt: skip
        if r.random() < 0.2:
            spec["initContainers"] = [
                {"name": "i0", "image": "x:2", "resources": {"limits": amounts}},
                {"name": "s0", "image": "x:2", "restartPolicy": "Always"},
            ]
        if r.random() < 0.2:
            spec["volumes"] = [{"name": "v"}, {"name": "m", "configMap": {"name": "x"}}]
            container["volumeMounts"] = [{"name": "v", "mountPath": "/v"}]
        if r.random() < 0.3:
            spec["nodeName"] = self.name("n")
        if r.random() < 0.2:
            spec["tolerations"] = [{"operator": "Exists"}]
        if r.random() < 0.15:
            spec["priorityClassName"] = "system-node-critical"
        if r.random() < 0.1:
            spec["schedulingGates"] = (
                [{"name": "example.com/gate"}] if "nodeName" not in spec else []
            )
        if r.random() < 0.3:
            spec["resources"] = self.pick(
                {}, {"limits": {}}, {"limits": {"cpu": "4", "memory": "8Gi"}},
                {"limits": {"cpu": "4"}}, {"requests": {"cpu": "3000m", "memory": "4Gi"}},
                {"requests": {"memory": "4Gi"}},
                {"requests": {"cpu": "3"}, "limits": {"cpu": "3", "hugepages-2Mi": "64Mi"}},
            )  # fmt: skip
            if r.random() < 0.4 and container["resources"].get("limits"):
                container["resources"]["limits"]["hugepages-2Mi"] = "32Mi"
        if r.random() < 0.2:
            spec["hostNetwork"] = True
        if r.random() < 0.3:
            spec["terminationGracePeriodSeconds"] = self.pick(0, 1, 5, -3)
        metadata: dict[str, Any] = {
            "name": self.name(), "labels": {"app": self.pick("x", "y"), "tier": "t"},
        }  # fmt: skip
        if r.random() < 0.15:
            metadata["annotations"] = {"example.com/a": "b"}
        if r.random() < 0.1:
            metadata["finalizers"] = ["example.com/f"]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, **more}

    def create_pod(self) -> Call:
        body = self.pod()
        if self.random.random() < 0.3:
            for field_name in ("kind", "apiVersion"):
                body.pop(field_name)
        return Call("POST", PODS, body, content_type="application/json")

    def dry_run(self) -> Call:
        return Call(
            self.pick("POST", "DELETE"),
            f"{PODS}/a?dryRun=All" if self.random.random() < 0.5 else f"{PODS}?dryRun=All",
            self.pod(metadata={"name": "dry"}),
        )

    def bad_pod(self) -> Call:
        body = self.pod()
        container = body["spec"]["containers"][0]
        match self.random.randrange(23):
            case 0:
                body["metadata"]["name"] = "Not_A_Name"
            case 1:
                body["spec"]["containers"] = []
            case 2:
                container["image"] = ""
            case 3:
                container["resources"] = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
            case 4:
                container["resources"] = {"requests": {"cpu": "many"}}
            case 5:
                body["spec"]["containers"] = [container, dict(container)]
            case 6:
                body["metadata"]["labels"] = {"bad label": "x"}
            case 7:
                body["spec"]["priority"] = 7
            case 8:
                body["spec"]["containers"] = "none"
            case 9:
                body["kind"] = "Node"
            case 10:
                body["metadata"]["namespace"] = "elsewhere"
            case 11:
                body["metadata"]["resourceVersion"] = "1"
            case 12:
                container["resources"] = {"requests": {"example.com/gpu": "1"}}
            case 13:
                container["resources"] = {"limits": {"hugepages-2Mi": "4Mi"}}
            case 14:
                container["resources"] = {"limits": {"bogus": "1"}}
            case 15:
                body["spec"]["restartPolicy"] = "Sometimes"
            case 16:
                body["spec"]["overhead"] = {"cpu": "100m"}
            case 17:
                container["resources"] = {"limits": {"cpu": "5", "memory": "1Gi"}}
                body["spec"]["resources"] = {"limits": {"cpu": "4"}}
            case 18:
                container["resources"] = {"requests": {"cpu": "5"}}
                body["spec"]["resources"] = {"requests": {"cpu": "4"}}
            case 19:
                body["spec"]["resources"] = {"limits": {"example.com/gpu": "1"}}
            case 20:
                limits = {"cpu": "1", "hugepages-2Mi": "64Mi"}
                container["resources"] = {"limits": limits}
                body["spec"]["resources"] = {"limits": limits | {"hugepages-2Mi": "32Mi"}}
            case 21:
                body["spec"]["resources"] = {"limits": {"hugepages-2Mi": "32Mi"}}
            case _:
                container["volumeMounts"] = [{"name": "nowhere", "mountPath": "/x"}]
        query = self.pick("", "", "?fieldValidation=Strict", "?fieldValidation=Ignore")
        if self.random.random() < 0.3:
            container["unknownField"] = {"x": 1}
        return Call("POST", PODS + query, body)

    def node(self) -> dict[str, Any]:
        return {
            "metadata": {"name": self.name("n"), "labels": {"zone": self.pick("z1", "z2")}},
            "spec": self.pick({}, {"taints": [{"key": "k", "effect": "NoSchedule"}]},
                              {"unschedulable": True}),
            "status": {"capacity": {"cpu": self.pick("4", "4000m"), "memory": "8192Mi"},
                       "conditions": [{"type": "Ready", "status": "True"}]},
        }  # fmt: skip

    def nrt(self) -> dict[str, Any]:
        zone = {"name": "node-0", "type": "Node", "costs": [{"name": "node-0", "value": 10}],
                "resources": [{"name": "cpu", "capacity": self.pick("4", 4), "allocatable": "4",
                               "available": self.pick("0", "3", "4")}]}  # fmt: skip
        return {
            "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology",
            "metadata": {"name": self.name("n")}, "zones": [zone] * self.pick(1, 2),
            "attributes": [{"name": "topologyManagerPolicy", "value": "none"}],
        }  # fmt: skip

    def create_other(self) -> Call:
        match self.random.randrange(6):
            case 0:
                return Call("POST", NODES, self.node())
            case 1:
                data = {"metadata": {"name": self.name()}, "data": {"k": self.pick("1", "2")}}
                return Call("POST", CONFIG, data)
            case 2:
                spec = {"holderIdentity": self.name(), "leaseDurationSeconds": self.pick(5, 40),
                        "renewTime": "2026-01-02T03:04:05.000006Z"}  # fmt: skip
                return Call("POST", LEASES, {"metadata": {"name": self.name()}, "spec": spec})
            case 3:
                selector = {"matchLabels": {"app": self.pick("x", "y")}}
                spec = {"minAvailable": self.pick(1, "50%"), "selector": selector}
                return Call("POST", BUDGETS, {"metadata": {"name": self.name()}, "spec": spec})
            case 4:
                body = {
                    "metadata": {"name": self.name("pc")},
                    "value": self.pick(10, 2_000_000_000),
                }
                return Call("POST", CLASSES, body)
            case _:
                return Call("POST", NRTS, self.nrt())

    def bad_other(self) -> Call:
        nrt = self.nrt()
        match self.random.randrange(10):
            case 0:
                del nrt["zones"]
            case 1:
                nrt["zones"] = "all"
            case 2:
                nrt["zones"][0]["resources"][0]["available"] = True
            case 3:
                del nrt["zones"][0]["type"]
            case 4:
                nrt["zones"][0]["unknown"] = 1
                nrt["more"] = {}
            case 5:
                nrt["zones"][0]["costs"] = [{"name": "node-0", "value": "ten"}]
            case 6:
                nrt["apiVersion"] = "topology.node.k8s.io/v9"
            case 7:
                lease = {"metadata": {"name": "bad"}, "spec": {"leaseDurationSeconds": 0}}
                return Call("POST", LEASES, lease)
            case 8:
                return Call("POST", NODES, {"metadata": {"name": "bad"}, "spec": {"taints": [
                    {"key": "k", "effect": "Never"}, {"key": "", "effect": ""}]}})  # fmt: skip
            case _:
                return Call("POST", NODES, self.pick("{", "[]", "", '"x"', "null"))
        strict = self.pick("", "?fieldValidation=Strict")
        return Call("POST", NRTS + strict, nrt)

    def read(self) -> Call:
        path = self.pick(
            *(f"{PODS}/{x}" for x in "abcd"), *(f"{NODES}/n{x}" for x in "abcd"),
            *(f"{NRTS}/n{x}" for x in "abcd"), f"{OLD_NRTS}/na", f"{PODS}/a/status",
            "/api/v1/namespaces/default", f"{LEASES}/a", f"{CONFIG}/a", f"{BUDGETS}/a",
            f"{CLASSES}/system-node-critical", f"{EVENTS}/e0", f"{NEW_EVENTS}/e1",
        )  # fmt: skip
        return Call("GET", path)

    def listing(self) -> Call:
        path = self.pick(*COLLECTIONS, "/api/v1/pods", OLD_NRTS)
        query: dict[str, str] = {}
        if path.endswith("/pods") and self.random.random() < 0.6:
            query["fieldSelector"] = self.pick(
                "spec.nodeName=na", "spec.nodeName=", "status.phase!=Running", "metadata.name=a",
                "spec.schedulerName=default-scheduler,status.phase=Pending",
                "spec.hostNetwork=true",
            )  # fmt: skip
        if self.random.random() < 0.3:
            query["labelSelector"] = self.pick(
                "app=x", "app!=x", "app in (x,z)", "app notin (y)", "tier", "!tier", "app=x,tier=t",
            )  # fmt: skip
        if self.random.random() < 0.4:
            query["limit"] = self.pick("1", "2", "500")
        elif self.random.random() < 0.4:
            query["resourceVersion"] = self.pick("0", f"{{list:{path}}}")
            if self.random.random() < 0.6:
                query["resourceVersionMatch"] = self.pick("NotOlderThan", "Exact")
        return Call("GET", path, query=query)

    def next_page(self) -> Call:
        path = self.pick(*COLLECTIONS)
        return Call("GET", path, query={"limit": "2", "continue": f"{{next:{path}}}"})

    def bad_list(self) -> Call:
        query = self.pick(
            {"fieldSelector": "spec.unknown=1"}, {"labelSelector": "a in ("}, {"limit": "x"},
            {"resourceVersion": "abc"}, {"resourceVersionMatch": "Exact"}, {"continue": "zzz"},
            {"resourceVersion": "5", "resourceVersionMatch": "Foo"}, {"fieldSelector": "xx"},
            {"resourceVersion": "999999999"},
        )  # fmt: skip
        return Call("GET", self.pick(PODS, NODES), query=query)

    def watch(self) -> Call:
        path = self.pick(PODS, NODES, NRTS)
        query = {"watch": "1", "timeoutSeconds": "1"}
        version = self.pick(f"{{list:{path}}}", f"{{list:{path}}}", "0", "")
        if version:
            query["resourceVersion"] = version
        if self.random.random() < 0.3 and path == PODS:
            query["labelSelector"] = "app=x"
        return Call("GET", path, query=query)

    def patch_pod(self) -> Call:
        path = f"{PODS}/{self.name()}"
        image = self.pick("i:9", "other")
        return self.pick(
            Call("PATCH", path, {"metadata": {"labels": {"app": self.pick("x", "y", None)}}},
                 content_type=MERGE),
            Call("PATCH", path, {"spec": {"containers": [{"name": "c0", "image": image}]}},
                 content_type=STRATEGIC),
            Call("PATCH", path, {"spec": {"containers": [{"name": "zz", "image": image}]}},
                 content_type=STRATEGIC),
            Call("PATCH", path, {"spec": {"nodeName": "elsewhere"}}, content_type=MERGE),
            Call("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE),
            Call("PATCH", path, {"metadata": {"finalizers": ["example.com/g"]}},
                 content_type=STRATEGIC),
            Call("PATCH", path, {"metadata": {"resourceVersion": f"{{rv:{path}}}",
                                              "annotations": {"n": "1"}}}, content_type=MERGE),
            Call("PATCH", path, {"spec": {"schedulingGates": None}}, content_type=STRATEGIC),
            Call("PATCH", path, {"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}},
                 content_type=STRATEGIC),
            Call("PATCH", path, {"spec": {"activeDeadlineSeconds": self.pick(5, 50)}},
                 content_type=MERGE),
            Call("PATCH", path, [
                {"op": "test", "path": "/metadata/labels/app", "value": self.pick("x", "y")},
                {"op": self.pick("add", "replace"), "path": "/metadata/labels/tier", "value": "u"},
            ], content_type=JSON),
        )  # fmt: skip

    def patch_node(self) -> Call:
        path = f"{NODES}/{self.name('n')}"
        taint = {"key": self.pick("k", "l"), "effect": "NoExecute", "value": "v"}
        return self.pick(
            Call("PATCH", path, {"spec": {"taints": [taint]}}, content_type=MERGE),
            Call("PATCH", path, {"spec": {"unschedulable": self.pick(True, None)}},
                 content_type=STRATEGIC),
            Call("PATCH", path, {"metadata": {"annotations": {"a": self.pick("1", None)}}},
                 content_type=STRATEGIC),
            Call("PATCH", path, {"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]}},
                 content_type=STRATEGIC),
            Call("PATCH", path, [{"op": "add", "path": "/metadata/labels/new~1key", "value": "v"},
                                 {"op": "copy", "from": "/metadata/labels/new~1key",
                                  "path": "/metadata/labels/b"}], content_type=JSON),
            Call("PATCH", path, [{"op": "remove", "path": "/metadata/labels/zone"}],
                 content_type=JSON),
        )  # fmt: skip

    def patch_nrt(self) -> Call:
        path = f"{NRTS}/{self.name('n')}"
        available = {"op": "replace", "path": "/zones/0/resources/0/available"}
        return self.pick(
            Call("PATCH", path, [{**available, "value": self.pick("1", "2")}], content_type=JSON),
            Call("PATCH", path, [
                {"op": "test", "path": "/metadata/resourceVersion", "value": f"{{rv:{path}}}"},
                {**available, "value": "3"}], content_type=JSON),
            Call("PATCH", path, [{**available, "value": {}}], content_type=JSON),
            Call("PATCH", path, {"attributes": [{"name": "a", "value": "b"}]}, content_type=MERGE),
            Call("PATCH", path, {"attributes": None, "unknown": 1}, content_type=MERGE),
            Call("PATCH", path, {"zones": None}, content_type=MERGE),
            Call("PATCH", path, {}, content_type=STRATEGIC),
        )  # fmt: skip

    def patch_status(self) -> Call:
        if self.random.random() < 0.5:
            conditions = [{"type": self.pick("Ready", "X"), "status": self.pick("True", "False"),
                           "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]  # fmt: skip
            status = self.pick(
                {"conditions": conditions}, {"allocatable": {"cpu": "3500m"}},
                {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
                {"images": None, "conditions": [{"$patch": "delete", "type": "X"}]},
            )  # fmt: skip
            path = f"{NODES}/{self.name('n')}/status"
            return Call("PATCH", path, {"status": status}, content_type=STRATEGIC)
        status = self.pick(
            {"phase": self.pick("Running", "Succeeded", "Failed")},
            {"conditions": [{"type": "Ready", "status": self.pick("True", "False")}]},
            {"reason": "Because", "message": "m", "startTime": "2026-01-01T00:00:00Z"},
            {"podIP": "10.0.0.9", "podIPs": [{"ip": "10.0.0.9"}]},
        )  # fmt: skip
        path = f"{PODS}/{self.name()}"
        body: dict[str, Any] = {"status": status}
        if self.random.random() < 0.4:
            body["metadata"] = {"uid": f"{{uid:{path}}}"}
        return Call("PATCH", f"{path}/status", body, content_type=STRATEGIC)

    def bad_patch(self) -> Call:
        path = self.pick(f"{NODES}/{self.name('n')}", f"{PODS}/{self.name()}")
        return self.pick(
            Call("PATCH", path, {"op": "add"}, content_type=JSON),
            Call("PATCH", path, [1], content_type=MERGE),
            Call("PATCH", path, "{", content_type=MERGE),
            Call("PATCH", path, [{"op": "jump", "path": "/a"}], content_type=JSON),
            Call("PATCH", path, [{"op": "remove", "path": "/nothing/here"}], content_type=JSON),
            Call("PATCH", path, {}, content_type="application/json"),
            Call("PATCH", path, {"metadata": {"name": "other"}}, content_type=MERGE),
            Call("PATCH", path, {"metadata": {"resourceVersion": "1"}}, content_type=MERGE),
            Call("PATCH", path, {"metadata": {"labels": {"a b": "c"}}}, content_type=MERGE),
            Call("PATCH", path, {"spec": []}, content_type=MERGE),
        )  # fmt: skip

    def replace(self) -> Call:
        name = self.name()
        match self.random.randrange(6):
            case 0:
                path = f"{CONFIG}/{name}"
                body = {"metadata": {"name": self.pick(name, name, "other", "")},
                        "data": {"k": self.pick("1", "3")}}  # fmt: skip
                if self.random.random() < 0.5:
                    body["metadata"]["resourceVersion"] = self.pick(f"{{rv:{path}}}", "1")
                return Call("PUT", path, body)
            case 1:
                path = f"{LEASES}/{name}"
                body = {"metadata": {"name": name}, "spec": {"holderIdentity": self.name()}}
                if self.random.random() < 0.6:
                    body["metadata"]["resourceVersion"] = f"{{rv:{path}}}"
                return Call("PUT", path, body)
            case 2:
                node = self.node()
                return Call("PUT", f"{NODES}/{node['metadata']['name']}", node)
            case 3:
                node = self.node()
                return Call("PUT", f"{NODES}/{node['metadata']['name']}/status", node)
            case 4:
                path = f"{CONFIG}/{name}"
                body = {"metadata": {"name": name, "uid": self.pick("zz", f"{{uid:{path}}}")}}
                return Call("PUT", path, body)
            case _:
                nrt = self.nrt()
                path = f"{NRTS}/{nrt['metadata']['name']}"
                if self.random.random() < 0.7:
                    nrt["metadata"]["resourceVersion"] = self.pick(f"{{rv:{path}}}", "1")
                return Call("PUT", path, nrt)

    def bind(self) -> Call:
        name = self.name()
        metadata: dict[str, Any] = {"name": self.pick(name, name, name, "other")}
        if self.random.random() < 0.3:
            metadata["uid"] = self.pick("wrong", f"{{uid:{PODS}/{name}}}")
        if self.random.random() < 0.3:
            metadata["annotations"] = {"bound": "yes"}
        target = self.pick({"kind": "Node", "name": self.name("n")}, {"name": "na"},
                           {"kind": "Pod", "name": "x"}, {})  # fmt: skip
        return Call("POST", f"{PODS}/{name}/binding", {"metadata": metadata, "target": target})

    def delete(self) -> Call:
        path = self.pick(
            *(f"{PODS}/{x}" for x in "abcd" * 3), *(f"{NODES}/n{x}" for x in "abcd"),
            f"{CONFIG}/a", f"{LEASES}/b", f"{BUDGETS}/a", f"{NRTS}/na", f"{NRTS}/nb",
        )  # fmt: skip
        body = self.pick(
            None, None, None, {"gracePeriodSeconds": 0}, {"gracePeriodSeconds": 0},
            {"gracePeriodSeconds": 3}, {"preconditions": {"uid": "wrong"}},
            {"preconditions": {"uid": f"{{uid:{path}}}"}}, {"kind": "Pod"},
            {"preconditions": {"resourceVersion": "1"}}, {"gracePeriodSeconds": "x"},
            {"propagationPolicy": "Background"}, {"propagationPolicy": "Sideways"},
        )  # fmt: skip
        return Call("DELETE", path, body)

    def delete_all(self) -> Call:
        path = self.pick(PODS, CONFIG, NRTS)
        return Call("DELETE", path, query={"labelSelector": "app=x"} if path == PODS else {})

    def evict(self) -> Call:
        name = self.name()
        return Call("POST", f"{PODS}/{name}/eviction", {"metadata": {"name": name}})

    def event(self) -> Call:
        if self.random.random() < 0.5:
            body = {"metadata": {"name": f"e{self.name()}"}, "reason": "R", "message": "m",
                    "involvedObject": {"kind": "Pod", "name": "a",
                                       "namespace": self.pick("default", "default", "x")},
                    "type": "Normal", "count": 1}  # fmt: skip
            return Call("POST", EVENTS, body)
        body = {"metadata": {"name": f"f{self.name()}"}, "reason": "R", "note": "m",
                "regarding": {"kind": "Pod", "name": "a", "namespace": "default"},
                "type": self.pick("Normal", "Normal", "Odd"), "action": "Act",
                "eventTime": "2026-01-01T00:00:00.000000Z",
                "reportingController": "example.com/c", "reportingInstance": "i"}  # fmt: skip
        if self.random.random() < 0.3:
            del body["eventTime"]
        return Call("POST", NEW_EVENTS, body)

    def odd(self) -> Call:
        return self.pick(
            Call("POST", f"{NODES}/na", {}), Call("PUT", NODES, {}), Call("PATCH", PODS, {}),
            Call("GET", "/api/v1/nothings"), Call("GET", "/apis/no.such.group/v1/x"),
            Call("GET", "/nowhere"), Call("GET", f"{PODS}/a/nothing"), Call("POST", "/api/v1/pods"),
            Call("GET", f"{PODS}/a", accept="text/plain"),
            Call("POST", PODS, {}, content_type="text/plain"),
            Call("GET", "/apis/apps/v9/replicasets"),
            Call("POST", "/api/v1/namespaces/none/pods", self.pod()),
        )  # fmt: skip


@pytest.fixture(scope="module")
def real() -> Iterator[Side]:
    """A real API server whose objects no controller touches."""
    cluster = Cluster.start()
    try:
        service_account = "/api/v1/namespaces/default/serviceaccounts/default"
        processes.wait_until(
            lambda: cluster.api.find(service_account) is not None, 60, "the default account"
        )
        cluster.stop_role("controller-manager")
        cluster.api.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd())
        processes.wait_until(lambda: _is_served(cluster), 60, "the CRD")
        ca = str(cluster.authority.certificate)
        yield Side(cluster.server, ca, str(cluster.info["token"]))
    finally:
        cluster.stop()


def _is_served(cluster: Cluster) -> bool:
    try:
        return cluster.api.find(NRTS) is not None
    except errors.KubeError:  # 429 while its storage is being set up
        return False


@pytest.fixture
def embedded() -> Iterator[Side]:
    """The embedded one, in a thread of its own."""
    ready, stop = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    server = APIServer(API())
    server.api.create("customresourcedefinitions", crd())

    async def serve() -> None:
        async with server:
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    side = Side(server.url)
    yield side
    side.pool.clear()
    loop.call_soon_threadsafe(stop.set)
    thread.join(10)
    loop.close()


def _clear(side: Side) -> None:
    for path in (PODS, NODES, CONFIG, LEASES, BUDGETS, NRTS, EVENTS):
        _, found = side.perform(Call("GET", path))
        for item in found["items"]:
            name = item["metadata"]["name"]
            if path == CONFIG and name == "kube-root-ca.crt":
                side.perform(Call("DELETE", f"{path}/{name}"))
                continue
            if item["metadata"].get("finalizers"):
                body = {"metadata": {"finalizers": None}}
                side.perform(Call("PATCH", f"{path}/{name}", body, content_type=MERGE))
            side.perform(Call("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0}))
    for letter in "abcd":
        side.perform(Call("DELETE", f"{CLASSES}/pc{letter}"))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_calls_get_the_same_answers(real: Side, embedded: Side, seed: int) -> None:
    script = Script(seed)
    for side in (real, embedded):
        _clear(side)
        side.said.clear()
        for path in COLLECTIONS:
            side.perform(Call("GET", path))
    differences: list[str] = []
    with ThreadPoolExecutor(2) as both:
        for number in range(CALLS):
            call = script.draw()
            theirs, ours = both.map(lambda side: side.perform(call), (real, embedded))  # noqa: B023
            wanted, got = ((code, comparable(body)) for code, body in (theirs, ours))
            if call.query.get("watch") and call.query.get("resourceVersion", "0") == "0":
                # What is there already comes in no fixed order.
                wanted, got = ((code, sorted(events, key=str)) for code, events in (wanted, got))
            if wanted != got:
                differences += [f"#{number} {call}", *list(unlike(wanted, got))[:12]]
    assert not differences, "\n".join(differences)
