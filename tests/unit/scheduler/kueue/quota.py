"""What an AdmissionCheck meets of Kueue: quota, checks, evictions, and pods that it starts."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rte.scheduler.kueue.machine import Admissions
from rte.scheduler.kueue.messages import (
    CHECKS,
    FLAVORS,
    TEMPLATES,
    WORKLOADS,
    Activate,
    Happened,
    Judge,
    SolveWorkload,
    WorkloadSolved,
    Written,
)
from rte.scheduler.loop import messages
from tests.unit.scheduler.build import pod_object
from tests.unit.scheduler.desk import Desk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rte.scheduler.kueue.messages import Effect, Event

CONTROLLER = "topology.rte.dev/fit"
CHECK = "zones"


def text(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod_set(name: str = "main", count: int = 1, cpu: Any = "4", **spec: Any) -> dict[str, Any]:
    """Pods that want zones, as a Job's template has them."""
    made = pod_object(cpu=cpu, **spec)
    template = {"metadata": {"labels": made["metadata"]["labels"]}, "spec": made["spec"]}
    return {"name": name, "count": count, "template": template}


class Quota:
    """A cluster queue that gives its quota to everybody, and one check of ours.

    Attributes:
        desk: the scheduler and its cluster.
        machine: what is tested.
        writes: whether what the machine wants written is written at once; else it waits in
            ``pending``.
        answers: whether what it asks is answered at once; else it waits in ``asked``.
    """

    def __init__(self, *, hold_s: float = 30.0, **options: Any) -> None:
        self.desk = Desk(**options)
        self.hold_s = hold_s
        self.workloads: dict[str, dict[str, Any]] = {}
        self.checks: dict[str, dict[str, Any]] = {}
        self.flavors: dict[str, dict[str, Any]] = {}
        self.pending: list[Judge] = []
        self.asked: list[SolveWorkload] = []
        self.answers = True
        self.loses_checks = False
        self.templates: dict[str, dict[str, Any]] = {}
        self.first_listed = (CHECKS, FLAVORS, TEMPLATES, WORKLOADS)
        self.writes = True
        self.effects: list[Effect] = []
        self.requeue: dict[str, float] = {}
        self.pods: dict[str, list[str]] = {}
        self.machine = Admissions(CONTROLLER, self.desk.machine, hold_s)
        self.desk.listeners.append(lambda events: self.handle(Happened(tuple(events))))
        self.handle(messages.Leading(active=True))

    def restart(self) -> None:
        """Another replica begins with what the API has."""
        self.pending.clear()
        self.asked.clear()
        self.machine = Admissions(CONTROLLER, self.desk.machine, self.hold_s)
        self.desk.restart()
        # It asks the scheduler that it runs beside.
        self.machine._scheduler = self.desk.machine
        tables = {
            CHECKS: self.checks,
            FLAVORS: self.flavors,
            TEMPLATES: self.templates,
            WORKLOADS: self.workloads,
        }
        for collection in self.first_listed:
            table = tables[collection]
            for obj in table.values():
                self.handle(messages.Seen(collection, obj))
            self.handle(messages.Listed(collection, frozenset(table), self.desk.version))
        self.handle(messages.Leading(active=True))

    # --- objects ---

    def check(self, name: str = CHECK, controller: str = CONTROLLER, **spec: Any) -> None:
        body = {"metadata": {"name": name}, "spec": {"controllerName": controller, **spec}}
        self._put(CHECKS, self.checks, name, body)

    def flavor(self, name: str, **spec: Any) -> None:
        self._put(FLAVORS, self.flavors, name, {"metadata": {"name": name}, "spec": spec})

    def template(self, claim: dict[str, Any]) -> None:
        """From it such claims are made."""
        metadata = claim["metadata"]
        body = {"metadata": metadata, "spec": {"spec": claim["spec"]}}
        self._put(TEMPLATES, self.templates, f"default/{metadata['name']}", body)

    def workload(
        self,
        name: str,
        *pod_sets: dict[str, Any],
        checks: Sequence[str] = (CHECK,),
        assignments: Sequence[Mapping[str, Any]] = (),
        **spec: Any,
    ) -> str:
        """A Workload that Kueue gives its quota at once; its key."""
        key = f"default/{name}"
        body = {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {"podSets": list(pod_sets) or [pod_set()], **spec},
            "status": {},
        }
        self.workloads[key] = body
        self.reserve(key, checks, assignments)
        return key

    def reserve(
        self,
        key: str,
        checks: Sequence[str] = (CHECK,),
        assignments: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        body = copy.deepcopy(self.workloads[key])
        known = {each["name"]: each for each in body["status"].get("admissionChecks", ())}
        body["status"] = {
            "admission": {"podSetAssignments": list(assignments)},
            "conditions": [self.condition("QuotaReserved")],
            "admissionChecks": [
                known.get(name, {"name": name, "state": "Pending", "message": "", **self.now()})
                for name in checks
            ],
        }
        self.put(key, body)

    def put(self, key: str, body: dict[str, Any]) -> None:
        self._put(WORKLOADS, self.workloads, key, body)

    def delete(self, key: str) -> None:
        del self.workloads[key]
        self.handle(messages.Gone(WORKLOADS, key))

    def condition(self, kind: str, status: str = "True") -> dict[str, str]:
        return {"type": kind, "status": status, **self.now()}

    def now(self) -> dict[str, str]:
        return {"lastTransitionTime": text(self.desk.now)}

    def state(self, key: str, check: str = CHECK) -> dict[str, Any]:
        checks = self.workloads[key]["status"]["admissionChecks"]
        return next(each for each in checks if each["name"] == check)

    def conditions(self, key: str) -> set[str]:
        found = self.workloads[key]["status"].get("conditions", ())
        return {each["type"] for each in found if each["status"] == "True"}

    def add_condition(self, key: str, kind: str) -> None:
        body = copy.deepcopy(self.workloads[key])
        kept = [each for each in body["status"]["conditions"] if each["type"] != kind]
        body["status"]["conditions"] = [*kept, self.condition(kind)]
        self.put(key, body)

    # --- Kueue ---

    def reconcile(self) -> None:
        """What Kueue does about checks (pkg/controller/core/workload_controller.go)."""
        for key, body in list(self.workloads.items()):
            states = [each["state"] for each in body["status"].get("admissionChecks", ())]
            reserved = "QuotaReserved" in self.conditions(key)
            if reserved and "Retry" in states:
                self.evict(key)
            elif reserved and "Rejected" in states:
                self.deactivate(key)
            elif reserved and set(states) == {"Ready"} and "Admitted" not in self.conditions(key):
                self.add_condition(key, "Admitted")

    def deactivate(self, key: str) -> None:
        body = self.workloads[key]
        if body["spec"].get("active") is not False:
            self.put(key, {**body, "spec": {**body["spec"], "active": False}})

    def evict(self, key: str) -> None:
        """The quota is taken back; checks begin anew (``resetChecksOnEviction``)."""
        body = copy.deepcopy(self.workloads[key])
        for each in body["status"]["admissionChecks"]:
            if each["state"] == "Retry":
                each["retryCount"] = each.get("retryCount", 0) + 1
                self.requeue[key] = self.desk.now + each.get("requeueAfterSeconds", 0)
            each["message"] = f"Reset to Pending after eviction. Previously: {each['state']}"
            each["state"] = "Pending"
        body["status"]["conditions"] = [
            self.condition("QuotaReserved", "False"),
            self.condition("Evicted"),
        ]
        self.put(key, body)

    def start(self, key: str) -> list[str]:
        """The pods of an admitted Workload come; their UIDs."""
        namespace, _, name = key.partition("/")
        assert namespace == "default"
        uids = []
        for each in self.workloads[key]["spec"]["podSets"]:
            spec = each["template"]["spec"]
            for number in range(each["count"]):
                uid = f"uid-{name}-{each['name']}-{number}"
                labels = {
                    **each["template"]["metadata"]["labels"],
                    "kueue.x-k8s.io/podset": each["name"],
                }
                obj = {
                    "metadata": {
                        "name": uid.removeprefix("uid-"),
                        "namespace": "default",
                        "uid": uid,
                        "creationTimestamp": text(self.desk.now),
                        "labels": labels,
                        "annotations": {"kueue.x-k8s.io/workload": name},
                    },
                    "spec": spec,
                    "status": {"phase": "Pending"},
                }
                self.desk.put("pods", uid, obj)
                uids.append(uid)
        self.settle()
        self.pods[key] = uids
        return uids

    def finish(self, key: str) -> None:
        """The pods end, then Kueue says that the Workload is finished."""
        for uid in self.pods.pop(key, ()):
            self.desk.end(uid)
        self.add_condition(key, "Finished")
        self.settle()

    # --- the machine ---

    def settle(self) -> None:
        """Until there is nothing to do at this moment."""
        for _ in range(1_000):
            self.desk.run_all()
            if self.machine.has_work(self.desk.now):
                self.handle(messages.Turn())
                continue
            before = len(self.effects), self.desk.version
            self.reconcile()
            if (len(self.effects), self.desk.version) == before:
                return
        raise AssertionError("no rest")

    def pass_time(self, seconds: float) -> None:
        end = self.desk.now + seconds
        while (due := self.machine.deadline()) is not None and due <= end:
            self.desk.pass_time(max(0.0, due - self.desk.now))
            self.handle(messages.Tick())
            self.settle()
        self.desk.pass_time(max(0.0, end - self.desk.now))
        self.handle(messages.Tick())
        self.settle()

    def handle(self, event: Event) -> None:
        effects = self.machine.handle(event, self.desk.now)
        self.effects += effects
        for effect in effects:
            if isinstance(effect, Judge):
                self.pending.append(effect)
            elif isinstance(effect, SolveWorkload):
                self.asked.append(effect)
            elif isinstance(effect, Activate) and not self.loses_checks:
                condition = dict(effect.condition)
                obj = {**self.checks[effect.name], "status": {"conditions": [condition]}}
                self._put(CHECKS, self.checks, effect.name, obj)
        if self.answers:
            self.answer()
        if self.writes:
            self.write()

    def answer(self) -> None:
        """Answer what the machine has asked."""
        while self.asked:
            asked = self.asked.pop(0)
            self.handle(WorkloadSolved(asked.key, asked.question.find_out()))

    def write(self) -> None:
        """Carry out what waits; a Workload that has changed is not written."""
        while self.pending:
            effect = self.pending.pop(0)
            body = self.workloads.get(effect.key)
            done = body is not None and body["metadata"]["resourceVersion"] == effect.version
            if body is not None and done:
                body = copy.deepcopy(body)
                found = {each["name"]: each for each in body["status"]["admissionChecks"]}
                for item in effect.items:
                    found[item["name"]] |= item
                self.put(effect.key, body)
            self.handle(Written(effect.key, done=done))

    def _put(
        self, collection: str, table: dict[str, dict[str, Any]], key: str, body: dict[str, Any]
    ) -> None:
        self.desk.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.desk.version)}
        table[key] = {**body, "metadata": metadata}
        self.handle(messages.Seen(collection, table[key]))
