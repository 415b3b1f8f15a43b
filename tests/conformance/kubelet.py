"""Recorded admissions of the real kubelet's packages, and the values of a case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte import errors, placement
from rte.model import bits
from rte.model.node import (
    CPUInfo,
    DevicePool,
    Holding,
    KubeletConfig,
    MemoryBlock,
    NodeState,
    Topology,
    ZoneInfo,
)
from rte.model.pod import QOS, Container, ContainerKind, Pod
from rte.placement.kubelet import demand, outcome
from rte.placement.kubelet.demand import qos_class
from rte.placement.kubelet.rules import rules_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: The release of recordings that name none.
VERSION = "v1.35.4"
#: The recordings enable the alpha options of the CPU manager; else ``feature_gates`` says.
GATES = {"CPUManagerPolicyAlphaOptions": True}
#: The recordings of 1.35.4 gave the CPU manager a reservation of zero; a kubelet gives it none.
ZERO_RESERVATION = (
    "cpumanager: [cpumanager] the static policy requires systemreserved.cpu + "
    "kubereserved.cpu to be greater than zero"
)
NO_RESERVATION = (
    "cpumanager: [cpumanager] unable to determine reserved CPU resources for static policy"
)

CASE_FIELDS = {
    "id", "version", "machine", "config", "devices", "mem_types", "start_error",
    "effective_reserved_cpus", "initial_shared", "initial_mem", "steps",
}  # fmt: skip
MACHINE_FIELDS = {"sockets", "uncore_reported", "cpus", "numa", "tags"}
ZONE_FIELDS = {"id", "mem", "hp", "dist"}
CONFIG_FIELDS = {
    "tm_policy", "tm_scope", "tm_options", "cpu_policy", "cpu_options", "reserved_cpus",
    "cpu_reservation_milli", "mem_policy", "reserved_memory", "feature_gates",
}  # fmt: skip
#: ``node_fit`` is what a scheduler could have known, no answer of the managers.
STEP_FIELDS = {
    "op", "pod", "qos", "node_fit", "ctrs", "pod_req", "pod_lim", "ok", "reason", "msg",
    "msg_nondeterministic", "fail_by", "fail_ctr", "fail_hint", "shared_before_cleanup", "alloc",
    "hang", "trace", "shared", "mem", "pod_cpus", "pod_mem", "start_dev", "start_fail",
}  # fmt: skip
CONTAINER_FIELDS = {"n", "k", "req", "lim"}
ALLOC_FIELDS = {"hint", "cpus", "mem", "dev", "cpu_level", "mem_level"}
#: Isolation level in the recording -> part of a holding that it is about.
LEVELS = {"cpu_level": "cpus", "mem_level": "memory"}
TRACE_FIELDS = {"ctr", "hints", "best", "admit"}


class Differences(list):
    """Lines that say what differs."""

    def compare(self, what: str, ours: object, recorded: object) -> None:
        if ours != recorded:
            self.append(f"{what}: got {ours!r}, recorded {recorded!r}")

    def known(self, what: str, value: dict, fields: set[str]) -> None:
        if not value.keys() <= fields:
            self.append(f"{what}: unknown fields {sorted(value.keys() - fields)}")


# Pod admission


def check_kubelet_pod_admission(case: dict) -> list[str]:
    return replay(case)[1]


def replay(case: dict) -> tuple[Replay | None, Differences]:
    """Run a case; no sequence where the kubelet would not have started."""
    found = Differences()
    found.known("case", case, CASE_FIELDS)
    found.known("machine", case["machine"], MACHINE_FIELDS)
    found.known("config", case["config"], CONFIG_FIELDS)
    for zone in case["machine"]["numa"]:
        found.known("zone", zone, ZONE_FIELDS)
    try:
        state = placement.initial_state(
            topology_of(case["machine"]),
            config_of(case["config"]),
            {name: pool_of(rows) for name, rows in case["devices"].items()},
            case.get("version", VERSION),
        )
    except errors.KubeletStartError as error:
        recorded = case.get("start_error")
        if recorded == ZERO_RESERVATION:
            recorded = NO_RESERVATION
        found.compare("start_error", error.text, recorded)
        return None, found
    found.compare("start_error", None, case.get("start_error"))
    sequence = Replay(case, state, found)
    for number, step in enumerate(case["steps"]):
        found.known(f"step {number}", step, STEP_FIELDS)
        sequence.step(f"step {number} ({step['op']} {step['pod']})", step)
    return sequence, found


class Replay:
    """One recorded sequence against our prediction."""

    def __init__(self, case: dict, state: NodeState, found: Differences) -> None:
        self.state = state
        self.found = found
        self.mem_types = case["mem_types"]
        self.active: dict[str, Pod] = {}
        self.hints: dict[str, Mapping[str, placement.Hint]] = {}
        # The device manager writes its file only after an allocation: what it lists may be gone.
        self.devices_on_file: Mapping[str, Mapping[str, Holding]] = {}
        # The recordings of 1.35.4 do not tell a container without limits from one whose limits
        # equal its requests.
        self.limits_known = "version" in case
        static = case["config"]["cpu_policy"] == "static"
        self.shared_known = static
        found.compare(
            "effective_reserved_cpus",
            bits.format_list(state.reserved) if static else None,
            case.get("effective_reserved_cpus"),
        )
        found.compare("initial_shared", self.shared(state), case.get("initial_shared"))
        self.last_mem = self.mem(state)
        found.compare("initial_mem", self.last_mem or None, case.get("initial_mem"))

    def shared(self, state: NodeState) -> str | None:
        return bits.format_list(state.shared) if self.shared_known else None

    def mem(self, state: NodeState) -> list:
        return [
            [
                zone,
                row.assignments,
                list(bits.members(row.group)),
                *(row.amounts[name].free if name in row.amounts else 0 for name in self.mem_types),
            ]
            for zone, row in sorted(state.memory.items())
        ]

    def step(self, where: str, step: dict) -> None:
        if step["op"] == "admit":
            if not self.admit(where, step):
                return
        elif step["op"] == "start":
            self.start(where, step)
        elif step["op"] == "remove":
            del self.active[step["pod"]]
            self.state = placement.remove(self.state, step["pod"])
        else:
            self.found.append(f"{where}: unknown operation")
        self.compare_state(where, step)

    def compare_state(self, where: str, step: dict) -> None:
        self.found.compare(f"{where} shared", self.shared(self.state), step.get("shared"))
        mem = self.mem(self.state)
        changed = mem if mem != self.last_mem else None
        self.found.compare(f"{where} mem", changed, step.get("mem"))
        self.last_mem = mem

    def admit(self, where: str, step: dict) -> bool:
        """Compares one admission; False when the kubelet did not survive it."""
        for container in step["ctrs"]:
            self.found.known(f"{where} container", container, CONTAINER_FIELDS)
        pod = pod_of(step)
        if self.limits_known:
            rules = rules_of(self.state.config, self.state.kubelet_version)
            self.found.compare(f"{where} qos", qos_class(pod, rules), step["qos"])
        answer = placement.execute(self.state, pod)
        predicted = placement.admit(self.state, pod)
        if predicted.verdict is not answer.verdict:
            self.found.compare(f"{where} uncertain", predicted.reason, outcome.DEVICE_CHOICE)
        self.trace(where, answer, step)
        if step.get("hang"):
            self.found.compare(f"{where} hang", answer.reason, outcome.KUBELET_HANGS)
            return False
        self.answer(where, answer, pod, step)
        if step["ok"]:
            self.active[step["pod"]] = pod
            self.hints[step["pod"]] = answer.hints
        wrote = {
            name: holding
            for name, holding in answer.holdings.items()
            if holding.devices and (answer.failed_by, answer.failed_container) != ("devices", name)
        }
        if wrote:
            self.devices_on_file = {**self.state.holdings, pod.uid: wrote}
        before = self.shared(answer.state)
        self.state = placement.settle(answer.state, frozenset(self.active))
        changed = before if before != self.shared(self.state) else None
        self.found.compare(
            f"{where} shared_before_cleanup",
            changed if not step["ok"] else None,
            step.get("shared_before_cleanup"),
        )
        return True

    def answer(self, where: str, answer: placement.Admission, pod: Pod, step: dict) -> None:
        self.found.compare(f"{where} ok", answer.admitted, step["ok"])
        if not step["ok"]:
            self.refusal(where, answer, step)
            return
        self.alloc(where, answer, pod, step.get("alloc", []))
        whole = answer.pod_holding or Holding()
        cpus = bits.format_list(whole.cpus) if whole.cpus else None
        self.found.compare(f"{where} pod_cpus", cpus, step.get("pod_cpus"))
        recorded = sorted(step.get("pod_mem", []))
        self.found.compare(f"{where} pod_mem", as_blocks(whole.memory), recorded)

    def start(self, where: str, step: dict) -> None:
        started = placement.start_containers(
            self.state, self.active[step["pod"]], self.hints[step["pod"]]
        )
        recorded = step.get("start_dev", {})
        # Of a container that failed, the recording may leave out what it got before that.
        given = {
            name: self.devices(masks)
            for name, masks in started.devices.items()
            if name not in started.failed or name in recorded
        }
        self.found.compare(f"{where} start_dev", given, recorded)
        self.found.compare(f"{where} start_fail", started.failed, step.get("start_fail", {}))
        self.state = started.state
        if started.devices.keys() - started.failed.keys():
            self.devices_on_file = self.state.holdings

    def devices(self, masks: Mapping[str, int]) -> dict[str, list[str]]:
        return {
            name: [self.state.devices[name].ids[place] for place in bits.members(mask)]
            for name, mask in masks.items()
        }

    def refusal(self, where: str, answer: placement.Admission, step: dict) -> None:
        self.found.compare(f"{where} reason", answer.reason, step.get("reason"))
        self.found.compare(f"{where} fail_ctr", answer.failed_container, step.get("fail_ctr"))
        self.found.compare(f"{where} fail_hint", as_hint(answer.failed_hint), step.get("fail_hint"))
        if not step.get("msg_nondeterministic"):
            self.found.compare(f"{where} fail_by", answer.failed_by, step.get("fail_by"))
            self.found.compare(f"{where} msg", answer.message, step.get("msg"))

    def alloc(self, where: str, answer: placement.Admission, pod: Pod, rows: list) -> None:
        self.found.compare(f"{where} containers", len(pod.containers), len(rows))
        for container, row in zip(pod.containers, rows, strict=False):
            what = f"{where} {container.name}"
            self.found.known(what, row, ALLOC_FIELDS)
            held = answer.holdings.get(container.name)
            ours: dict = {}
            if container.name in answer.hints:
                ours["hint"] = as_hint(answer.hints[container.name])
            if held and held.cpus:
                ours["cpus"] = bits.format_list(held.cpus)
            if held and held.memory:
                ours["mem"] = as_blocks(held.memory)
            if held and held.devices:
                ours["dev"] = self.devices(held.devices)
            for level in row.keys() & LEVELS.keys():
                ours[level] = level_of(container, held, LEVELS[level])
            recorded = dict(row)
            if "mem" in recorded:
                recorded["mem"] = sorted(recorded["mem"])
            self.found.compare(what, ours, recorded)

    def trace(self, where: str, answer: placement.Admission, step: dict) -> None:
        if "trace" not in step:
            return
        self.found.compare(f"{where} merges", len(answer.merges), len(step["trace"]))
        for merged, row in zip(answer.merges, step["trace"], strict=False):
            self.found.known(f"{where} trace", row, TRACE_FIELDS)
            ours = {
                "ctr": merged.container,
                "hints": [as_provider(provider) for provider in merged.providers],
                "best": as_hint(merged.best),
                "admit": merged.admitted,
            }
            recorded = {**row, "hints": [as_provider(provider) for provider in row["hints"]]}
            self.found.compare(f"{where} trace {merged.container}", ours, recorded)


def level_of(container: Container, held: Holding | None, manager: str) -> str:
    """The manager's word for how a container's resources are kept apart
    (GetResourceIsolationLevel), for pods with pod-level resources under the gate.
    """
    if not getattr(held, manager, None):
        return "host"
    own = demand.is_eligible(container)
    if manager == "cpus":
        own = own and container.limits["cpu"] % 1000 == 0
    return "container" if own else "pod"


def as_blocks(blocks: Iterable[MemoryBlock]) -> list:
    return sorted([block.resource, list(bits.members(block.zones)), block.size] for block in blocks)


def as_hint(hint: placement.Hint | None) -> list | None:
    return None if hint is None else list(hint)


def as_provider(provider: object) -> dict:
    """Both null and ``{}`` mean "no opinion"."""
    return {
        name: None if hints is None else [list(hint) for hint in hints]
        for name, hints in (provider or {}).items()
    }


def topology_of(machine: dict) -> Topology:
    return Topology(
        cpus=tuple(CPUInfo(*row) for row in machine["cpus"]),
        zones=tuple(
            ZoneInfo(
                id=zone["id"],
                memory_bytes=zone["mem"],
                hugepages={int(kib) * 1024: count for kib, count in zone["hp"].items()},
                distances=tuple(zone["dist"]),
            )
            for zone in machine["numa"]
        ),
        sockets=machine["sockets"],
        uncore_reported=machine["uncore_reported"],
    )


def config_of(config: dict) -> KubeletConfig:
    reserved = config["reserved_cpus"]
    return KubeletConfig(
        topology_policy=config["tm_policy"],
        topology_scope=config["tm_scope"],
        topology_options=config["tm_options"],
        cpu_policy=config["cpu_policy"],
        cpu_options=config["cpu_options"],
        reserved_cpus=None if reserved is None else bits.parse_list(reserved),
        cpu_reservation_milli=config["cpu_reservation_milli"],
        memory_policy=config["mem_policy"],
        reserved_memory={row["numa"]: row["limits"] for row in config["reserved_memory"] or ()},
        feature_gates={**GATES, **(config.get("feature_gates") or {})},
    )


def pool_of(rows: list) -> DevicePool:
    rows = sorted(rows, key=lambda row: row["id"])
    return DevicePool(
        ids=tuple(row["id"] for row in rows),
        zones=tuple(None if row["numa"] is None else bits.of(row["numa"]) for row in rows),
        healthy=bits.of(place for place, row in enumerate(rows) if row["healthy"]),
    )


def pod_of(step: dict) -> Pod:
    return Pod(
        uid=step["pod"],
        name=step["pod"],
        qos=QOS(step["qos"]),
        containers=tuple(
            Container(
                name=row["n"],
                kind=ContainerKind(row["k"]),
                requests=row["req"],
                limits=row.get("lim", row["req"]),
            )
            for row in step["ctrs"]
        ),
        pod_requests=step.get("pod_req"),
        pod_limits=step.get("pod_lim"),
    )
