"""What must hold: at each write, each second, and once nothing has happened for a while.

Each rule has a model of its own, made of what the API server stored and what kubelets have; none
asks the programs under test what they believe.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rte import placement
from rte.k8s import podspec
from rte.sim.kubelet import predicates
from tests.world import reports, sizes
from tests.world.clock import PROCESS
from tests.world.cluster import GPU

if TYPE_CHECKING:
    from tests.world.cluster import World
    from tests.world.nodes import Node
    from tests.world.processes import Process
    from tests.world.turns import Turns

_LEASES = "leases.coordination.k8s.io"
_NRTS = "noderesourcetopologies.topology.node.k8s.io"
_CLAIMS = "resourceclaims.resource.k8s.io"

#: For so long after something that only the kubelet knew may a kubelet refuse what was decided.
_EXCUSED_S = 20.0
#: Design §8: trust ends 45 s after a kubelet's death at the latest; requests take their time.
_TRUST_S = 50.0
#: Requests of one process within ten seconds.
_MOST_REQUESTS = 1500
#: Writes for a change that somebody else has made, when all else is quiet.
_MOST_WRITES = 6
#: Entries that a scheduler may keep of an empty cluster, and of each node of it.
_MOST_KEPT, _MOST_KEPT_BY_NODE = 1500, 400


@dataclass(frozen=True)
class Violation:
    """Something that must not be. ``rule``: which; ``when``: seconds since the world is up."""

    rule: str
    when: float
    what: str

    def __str__(self) -> str:
        return f"{self.when:.1f} s: {self.rule}: {self.what}"


class BrokenError(Exception):
    """A rule is broken."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(str(violation))
        self.violation = violation


class _Faults(logging.Handler):
    """Internal errors, which the bulkheads of the programs only log."""

    def __init__(self, judge: Judge) -> None:
        super().__init__(logging.WARNING)
        self._judge = judge

    def emit(self, record: logging.LogRecord) -> None:
        process = PROCESS.get(None)
        text = record.getMessage()
        if self._judge.world.tells:
            self._judge.world.say(f"    {process.name if process else '?'}: {text[:300]}")
        if (record.exc_info or "Traceback" in text) and not (process and process.dead):
            self._judge.breaks("internal error", f"{process.name if process else '?'}: {text}")


class Judge:
    """See the module. ``found``: what was found, the first of each rule."""

    world: World

    def __init__(self) -> None:
        self.found: list[Violation] = []
        self.binds = self.refusals = self.excused = self.kept = 0
        self.holder: Process | None = None
        self._bound: dict[str, tuple[Process, float]] = {}
        self._devices: dict[tuple[str, str, str], str] = {}
        self._claims: dict[str, frozenset[tuple[str, str, str]]] = {}
        self._writes: deque[tuple[float, str, str]] = deque(maxlen=2000)
        self._agent_died: dict[str, float] = {}
        self._rates: dict[str, deque[tuple[float, int]]] = {}
        self._handler = _Faults(self)
        self._counts: dict[str, int] = {}
        self._others: deque[float] = deque(maxlen=2000)
        self.turns: Turns
        self._restored_at = -math.inf

    def breaks(self, rule: str, what: str) -> None:
        """A rule is broken."""
        if all(one.rule != rule for one in self.found):
            violation = Violation(rule, self.world.now() - 1000.0, what)
            self.found.append(violation)
            self.world.say(f"!!! {violation}")

    def watch_logs(self, *, on: bool) -> None:
        """Hear what the programs log."""
        log = logging.getLogger("rte")
        if on:
            log.addHandler(self._handler)
            log.propagate = False
        else:
            log.removeHandler(self._handler)
            log.propagate = True

    def empty(self) -> None:
        """Nothing is left to remember: all pods were deleted long ago."""
        for name, scheduler in self.world.running.items():
            kept = sizes.entries(scheduler)
            most = max(kept, key=lambda key: kept[key])
            self.kept = sum(kept.values())
            if self.kept > _MOST_KEPT + _MOST_KEPT_BY_NODE * len(self.world.nodes):
                self.breaks(
                    "memory is bounded",
                    f"{name} keeps {self.kept} entries of nobody, {kept[most]} of them in {most}",
                )

    # --- at each write ---

    def committed(self, process: Process, change: Any) -> None:
        """The API server has stored something."""
        is_ours = process in self.world.schedulers.values() or process.name.startswith("rte-agent")
        if not is_ours and change.resource != _LEASES:
            self._others.append(self.world.now())
        match change.resource:
            case "pods":
                self._pod_written(process, change)
            case "leases.coordination.k8s.io" if change.key == ("kube-system", "rte-scheduler"):
                holder = (change.object["spec"] or {}).get("holderIdentity")
                if change.kind == "DELETED" or not holder:
                    self.holder = None if change.kind == "DELETED" else self.holder
                else:
                    self.holder = process
            case "resourceclaims.resource.k8s.io":
                self._claim_written(change)

    def restored(self) -> None:
        """An etcd was restored: what was written since the backup was not."""
        self._devices, self._claims = {}, {}
        self.turns.restored()
        self._restored_at = self.world.now()
        for key, obj in self.world.api.store.items(_CLAIMS):
            self._allocate("/".join(key), obj)
        self.holder = None

    def _pod_written(self, process: Process, change: Any) -> None:
        obj, before = change.object, change.previous
        by_us = process in self.world.schedulers.values()
        for rule, what in self.turns.written(change, by_us=by_us):
            self.breaks(rule, f"{process.name}: {what}")
        where = obj["spec"].get("nodeName")
        if change.kind == "DELETED" or not where or not by_us:
            return
        if before is None or before["spec"].get("nodeName"):
            return
        self.binds += 1
        uid = obj["metadata"]["uid"]
        self._bound[uid] = (process, self.world.now())
        self.world.say(f"{process.name} binds {obj['metadata']['name']} to {where}")
        # A Lease of yesterday may have any holder: each replica goes on until its own runs out.
        is_known = self.world.now() - self._restored_at > self.world.make.lease_s
        if is_known and self.holder not in (None, process):
            self.breaks(
                "one binder",
                f"{process.name} binds {obj['metadata']['name']} while {self.holder.name} holds "
                "the Lease",
            )
        self._judge_trust(obj, where)

    def _judge_trust(self, obj: Any, where: str) -> None:
        node = self.world.nodes.get(where)
        if node is None or not is_exclusive(obj):
            return
        now = self.world.now()
        for what, process in (("kubelet", node.process), ("agent", node.agent)):
            silent = now - process.died
            if process.dead and silent > _TRUST_S:
                name = obj["metadata"]["name"]
                self.breaks(
                    "nothing is trusted that is dead",
                    f"{name} is bound to {where}, whose {what} is dead for {silent:.0f} s",
                )
        link = node.agent.link
        if now < link.until and now - link.since > _TRUST_S:
            name = obj["metadata"]["name"]
            self.breaks(
                "nothing is trusted that is dead",
                f"{name} is bound to {where}, whose agent reaches nobody for "
                f"{now - link.since:.0f} s",
            )

    def _claim_written(self, change: Any) -> None:
        key = "/".join(change.key)
        for device in self._claims.pop(key, ()):
            self._devices.pop(device, None)
        if change.kind != "DELETED":
            self._allocate(key, change.object)

    def _allocate(self, key: str, obj: Any) -> None:
        results = (((obj.get("status") or {}).get("allocation") or {}).get("devices") or {}).get(
            "results"
        ) or ()
        devices = frozenset((one["driver"], one["pool"], one["device"]) for one in results)
        self._claims[key] = devices
        for device in devices:
            other = self._devices.setdefault(device, key)
            if other != key:
                self.breaks("no device promised twice", f"{device} for {other} and {key}")

    def wrote(self, process: Process, method: str, path: str, *, changed: bool) -> None:
        """A process has written something, and it was accepted."""
        now = self.world.now()
        if "/leases" in path:
            return
        self._writes.append((now, process.name, f"{method} {path}"))
        if not changed and method in ("PUT", "PATCH") and now > process.unsure_until:
            # A second client may have brought about the same meanwhile: once is no habit.
            key = f"{process.name} {method} {path}"
            self._counts[key] = self._counts.get(key, 0) + 1
            if "noderesourcetopologies" in path or self._counts[key] >= 3:
                self.breaks("no write without a change", f"{process.name}: {method} {path}")

    # --- kubelets ---

    def refused(self, node: Node, record: Any, refusal: Any) -> None:
        """A kubelet has refused a pod."""
        uid = record.obj["metadata"]["uid"]
        bound = self._bound.get(uid)
        if bound is None:
            return
        self.refusals += 1
        process, at = bound
        excuses = [
            why for why, moment in node.upset.items()
            if moment > at - _EXCUSED_S
        ]  # fmt: skip
        if excuses:
            self.excused += 1
            return
        self.breaks(
            "no refusal but by what nobody could know",
            f"the kubelet of {node.name} refuses {record.pod.name}, bound by {process.name} "
            f"{self.world.now() - at:.1f} s ago: {refusal.reason}: {refusal.message}",
        )

    # --- each second ---

    def tick(self) -> None:
        """Look at what is cheap to look at."""
        world = self.world
        for rule, what in self.turns.second():
            self.breaks(rule, what)
        agents = [node.agent for node in world.nodes.values()]
        processes = [*world.schedulers.values(), *agents, world.control]
        for process in processes:
            if process.ended:
                self.breaks("processes go on", f"{process.name} has ended: {process.ended}")
            rates = self._rates.setdefault(process.name, deque(maxlen=11))
            rates.append((world.now(), process.requests))
            sent = rates[-1][1] - rates[0][1]
            if sent > _MOST_REQUESTS:
                self.breaks(
                    "a bounded number of steps", f"{process.name} sent {sent} requests in 10 s"
                )

    # --- once all is quiet ---

    def quiet(self) -> None:
        """Nothing has happened for a while: everything must be as it should be."""
        self._judge_waiting()
        self._judge_reports()
        self._judge_claims()

    def silent(self, since: float) -> None:
        """Nobody has done anything since then, so there is little to write.

        Pods end by themselves: each change that is not ours is a cause of some writes.
        """
        wrote = [line for line in self._writes if line[0] > since]
        causes = sum(moment > since for moment in self._others)
        if len(wrote) > 4 + _MOST_WRITES * causes:
            last = ", ".join(f"{name}: {what}" for _, name, what in wrote[-3:])
            self.breaks("silence", f"{len(wrote)} writes while nothing happens, last: {last}")

    def _judge_waiting(self) -> None:
        world = self.world
        pods = [obj for _, obj in world.api.store.items("pods")]
        waiting = [
            pod for pod in pods
            if not pod["spec"].get("nodeName")
            and pod["spec"]["schedulerName"] == "rte-scheduler"
            and not pod["metadata"].get("deletionTimestamp")
            and pod["status"].get("phase") not in ("Succeeded", "Failed")
        ]  # fmt: skip
        if not waiting:
            return
        places = [place for place in map(self._place, world.nodes.values()) if place is not None]
        units: dict[str, list[Any]] = {}
        for pod in waiting:
            group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
            units.setdefault(group or pod["metadata"]["uid"], []).append(pod)
        for name, unit in units.items():
            group = world.api.store.get("podgroups.scheduling.k8s.io", ("default", name))
            if "schedulingGroup" in unit[0]["spec"]:
                least = (group or {}).get("spec", {}).get("schedulingPolicy", {}).get("gang", {})
                there = [
                    pod for pod in pods
                    if (pod["spec"].get("schedulingGroup") or {}).get("podGroupName") == name
                    and pod["spec"].get("nodeName")
                    and pod["status"].get("phase") not in ("Succeeded", "Failed")
                ]  # fmt: skip
                if group is None or len(unit) + len(there) < least.get("minCount", 99):
                    continue
            where = _fit(places, unit, [2000])
            if where is not None:
                names = ", ".join(pod["metadata"]["name"] for pod in unit)
                self.breaks("nothing waits that fits", f"{names} would fit on {', '.join(where)}")
            elif len(unit) == 1 and (priority := unit[0]["spec"].get("priority") or 0) > 0:
                lower = [self._place(node, priority) for node in world.nodes.values()]
                where = _fit([place for place in lower if place is not None], unit, [200])
                if where is not None:
                    self.breaks(
                        "nobody urgent waits for who is not",
                        f"{unit[0]['metadata']['name']} would fit on {where[0]} but for pods of "
                        "lower priority",
                    )

    def _place(self, node: Node, above: int | None = None) -> Place | None:
        """A node as its kubelet has it; ``above``: without all whose priority is lower."""
        store = self.world.api.store
        made = store.get("nodes", ("", node.name))
        if made is None or made["spec"].get("unschedulable") or made["spec"].get("taints"):
            return None
        if not node.up or node.agent.dead or node.agent.ended:
            return None
        claimed = {device for device in self._devices if device[1] == node.name}
        supply = 0
        for _, one in store.items("resourceslices.resource.k8s.io"):
            if one["spec"].get("nodeName") == node.name and one["spec"]["driver"].startswith("gpu"):
                names = {
                    (one["spec"]["driver"], node.name, d["name"]) for d in one["spec"]["devices"]
                }
                supply += len(names - claimed)
        kubelet = node.kubelet
        running = [record.obj for record in kubelet._records.values() if record.active]
        others = tuple(
            one for one in running if above is None or (one["spec"].get("priority") or 0) >= above
        )
        active = frozenset(one["metadata"]["uid"] for one in others)
        _, totals = kubelet._totals()
        return Place(
            node.name, made, placement.settle(kubelet.state, active), others, totals, supply
        )

    def _judge_reports(self) -> None:
        world = self.world
        for node in world.nodes.values():
            if not node.up or node.agent.dead:
                continue
            obj = world.api.store.get(_NRTS, ("", node.name))
            if obj is None:
                self.breaks("every report is there", f"{node.name} has none")
                continue
            for what in reports.differences(node, obj):
                self.breaks("every report equals what its kubelet has", f"{node.name}: {what}")
            self._judge_owner(node, obj)

    def _judge_owner(self, node: Node, obj: Any) -> None:
        owner = {one.get("uid") for one in obj["metadata"].get("ownerReferences") or ()}
        made = self.world.api.store.get("nodes", ("", node.name))
        if made is not None and owner != {made["metadata"]["uid"]}:
            self.breaks("every report is owned by its Node", f"{node.name}: {owner}")
        lease = self.world.api.store.get(_LEASES, ("rte-agents", node.name))
        if lease is None or (lease["spec"] or {}).get("holderIdentity") != node.name:
            self.breaks("every agent that lives is seen to live", f"{node.name}: {lease}")

    def _judge_claims(self) -> None:
        store = self.world.api.store
        pods = {obj["metadata"]["uid"]: obj for _, obj in store.items("pods")}
        for (namespace, name), claim in store.items(_CLAIMS):
            status = claim.get("status") or {}
            if not status.get("allocation"):
                continue
            users = [pods.get(one["uid"]) for one in status.get("reservedFor") or ()]
            bound = [pod for pod in users if pod is not None and pod["spec"].get("nodeName")]
            if not bound:
                self.breaks(
                    "nothing is kept for nobody", f"claim {namespace}/{name} of no pod that runs"
                )


@dataclass(frozen=True)
class Place:
    """One node as it truly is, for the question who would fit."""

    name: str
    node: Any
    state: Any
    others: tuple[Any, ...]
    totals: dict[str, int]
    devices: int

    def plus(self, pod: Any) -> Place | None:
        """With one more pod; None: its kubelet would refuse it."""
        wants = len(pod["spec"].get("resourceClaims") or ())
        if wants > self.devices:
            return None
        parsed = podspec.parse_pod(pod)
        answer = placement.execute(self.state, parsed)
        if not answer.admitted:
            return None
        totals = dict(self.totals)
        for name, pool in self.state.devices.items():
            totals[name] = max(totals.get(name, 0), len(pool.ids))
        wanted = pod["spec"]["containers"][0]["resources"].get("requests") or {}
        if GPU in wanted:
            held = sum(
                int((c["resources"].get("requests") or {}).get(GPU, 0))
                for other in self.others for c in other["spec"]["containers"]
            )  # fmt: skip
            if held + int(wanted[GPU]) > self.totals.get(GPU, 0):
                return None
        if predicates.check(pod, self.others, self.node, totals) is not None:
            return None
        return Place(
            self.name, self.node, answer.state, (*self.others, pod), self.totals,
            self.devices - wants,
        )  # fmt: skip


def _fit(places: list[Place], unit: list[Any], steps: list[int]) -> list[str] | None:
    """Where all of them would fit together; None: nowhere, or it takes too long to tell."""
    if not unit:
        return []
    for number, place in enumerate(places):
        if steps[0] <= 0:
            return None
        steps[0] -= 1
        after = place.plus(unit[0])
        if after is None:
            continue
        rest = _fit([*places[:number], after, *places[number + 1 :]], unit[1:], steps)
        if rest is not None:
            return [place.name, *rest]
    return None


def is_exclusive(obj: Any) -> bool:
    """Whether a pod asks for CPUs of its own."""
    resources = obj["spec"]["containers"][0].get("resources") or {}
    limits = resources.get("limits") or {}
    return "cpu" in limits and not str(limits["cpu"]).endswith("m")
