"""The scheduler's metrics: kube-scheduler's names where it has them, ``rte_`` for what is ours."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest

from rte import __version__

_SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5, 30, 120)


class SchedulerMetrics:
    """What the scheduler counts. One instance per scheduler; nothing is global."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        build = Gauge("rte_build_info", "Version of the scheduler.", ["version"], registry=registry)
        build.labels(__version__).set(1)
        self.attempts = Counter(
            "scheduler_schedule_attempts",
            "Attempts by result: scheduled, unschedulable or error.",
            ["result", "profile"],
            registry=registry,
        )
        self.attempt_seconds = Histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Time of one decision.",
            ["result", "profile"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.sli_seconds = Histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From the moment that a pod was seen until it was bound.",
            ["attempts"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.pending = Gauge(
            "scheduler_pending_pods", "Waiting pods by queue.", ["queue"], registry=registry
        )
        self.preemption_attempts = Counter(
            "scheduler_preemption_attempts", "Searches for pods to evict.", registry=registry
        )
        self.preemption_victims = Histogram(
            "scheduler_preemption_victims",
            "Pods evicted for one pod.",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=registry,
        )
        self.turned_away = Counter(
            "rte_scheduler_connections_turned_away",
            "Connections to our listeners that found too many others: one of them was closed.",
            registry=registry,
        )
        self.leader = Gauge(
            "leader_election_master_status", "1 while this replica binds.", ["name"],
            registry=registry,
        )  # fmt: skip
        self.binds = Counter(
            "rte_scheduler_binds",
            "Bind requests by outcome: bound, elsewhere, gone, refused, failed or abandoned.",
            ["outcome"],
            registry=registry,
        )
        self.bind_seconds = Histogram(
            "rte_scheduler_bind_seconds",
            "From a decision until the API has it.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.confirm_seconds = Histogram(
            "rte_scheduler_confirm_seconds",
            "From a decision until the node's report confirms it.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.rejections = Counter(
            "rte_scheduler_rejections",
            "Pods that a kubelet refused, by reason; owner: ours or foreign.",
            ["reason", "owner"],
            registry=registry,
        )
        self.predictions = Counter(
            "rte_scheduler_predictions",
            "Pods bound here, by what became of their prediction, and by kubelet version.",
            ["result", "kubelet"],
            registry=registry,
        )
        self.refusals = Counter(
            "rte_scheduler_predicted_refusals",
            "Nodes counted in the verdicts on pods that fit nowhere, by reason.",
            ["reason"],
            registry=registry,
        )
        self.nodes = Gauge(
            "rte_scheduler_nodes",
            "Nodes by report: exact, zones, none or distrusted.",
            ["report"],
            registry=registry,
        )
        self.kubelets = Gauge(
            "rte_scheduler_kubelets",
            "Nodes with an exact report, by how well their kubelet's rules are known: exact, "
            "assumed (of an older patch release) or unknown (a last resort).",
            ["rules"],
            registry=registry,
        )
        self.broken_by_restart = Gauge(
            "rte_scheduler_nodes_broken_by_restart",
            "Nodes whose kubelet would not start again (start_error), or would refuse pods that "
            "run (refusals).",
            ["effect"],
            registry=registry,
        )
        self.pods_alignment = Gauge(
            "rte_pods_alignment",
            "Running pods with DRA devices: aligned (these are where their CPUs and memory are), "
            "across (zones), or unknown.",
            ["state"],
            registry=registry,
        )
        self.malformed = Gauge(
            "rte_malformed",
            "Objects of others that cannot be read now, by kind.",
            ["kind"],
            registry=registry,
        )
        self.quarantined = Gauge(
            "rte_quarantined",
            "Objects and units that are put aside after an internal error, by kind.",
            ["kind"],
            registry=registry,
        )
        self.faults = Counter(
            "rte_faults",
            "Internal errors that were caught, by the kind of what caused them.",
            ["kind"],
            registry=registry,
        )
        self.reservations = Gauge(
            "rte_scheduler_reservations",
            "Nodes kept for a pod that has waited too long.",
            registry=registry,
        )

        self.gangs_in_part = Gauge(
            "rte_scheduler_gangs_in_part",
            "Gangs of which some pods have a place and others, that are due, have none.",
            registry=registry,
        )
        self.gang_attempts = Counter(
            "rte_scheduler_gang_attempts",
            "Decisions about gangs, by result: scheduled (those in part too) or unschedulable.",
            ["result"],
            registry=registry,
        )
        self.gang_releases = Counter(
            "rte_scheduler_gang_releases",
            "Gangs whose pods were deleted because they could not be completed.",
            registry=registry,
        )
        self.group_conflicts = Gauge(
            "rte_scheduler_group_conflicts",
            "CPUs, GPUs and NICs that two pods hold, and records that cannot be read.",
            registry=registry,
        )
        self.group_amounts = Gauge(
            "rte_scheduler_group_amounts",
            "What nodes have for processing groups: logical CPUs, GPUs, NIC functions and huge "
            "pages that are free, held, reserved or (CPUs) stranded.",
            ["resource", "state"],
            registry=registry,
        )
        self.group_search_limits = Counter(
            "rte_scheduler_group_search_limits",
            "Searches for a place of processing groups that ran out of steps.",
            registry=registry,
        )

        self.fit_pods = Gauge(
            "rte_fit_pods",
            "How many pods of each shape in --fit-shapes fit now.",
            ["shape"],
            registry=registry,
        )
        self.fit_largest_zone = Gauge(
            "rte_fit_largest_free_zone_cpus",
            "Free exclusive CPUs of the zone that has most of them.",
            registry=registry,
        )
        self.fit_fragmentation = Gauge(
            "rte_fit_fragmentation_ratio",
            "Share of the free exclusive CPUs that no shape in --fit-shapes can use.",
            registry=registry,
        )

        self.move_plans = Counter(
            "rte_scheduler_move_plans",
            "Plans to move pods for one that waits: fits, does not fit or cut off.",
            ["verdict"],
            registry=registry,
        )
        self.moves = Counter(
            "rte_scheduler_moves",
            "Pods that were to be moved for others: evicted, or refused by a disruption budget.",
            ["result"],
            registry=registry,
        )
        self.cleaned = Counter(
            "rte_scheduler_refused_pods_deleted",
            "Pods that a kubelet had refused and --clean-refused has deleted.",
            registry=registry,
        )
        self.kueue_checks = Counter(
            "rte_scheduler_kueue_checks",
            "States written for AdmissionChecks of Workloads: Pending (does not fit, keeps its "
            "quota for now), Ready, Retry or Rejected.",
            ["state"],
            registry=registry,
        )
        self.kueue_waiting = Gauge(
            "rte_scheduler_kueue_waiting",
            "Workloads of Kueue that have their quota and do not fit, or are not tried yet.",
            registry=registry,
        )
        self.kueue_promised = Gauge(
            "rte_scheduler_kueue_promised_pods",
            "Pods of Workloads that were let start and have no node yet: their room is kept from "
            "other Workloads.",
            registry=registry,
        )

        # What is rare has a series from the start, so that its first increase can be seen.
        self.rejections.labels("TopologyAffinityError", "ours")

    def unschedulable(self) -> int:
        """Attempts so far that found no place."""
        return int(
            sum(
                sample.value
                for metric in self.attempts.collect()
                for sample in metric.samples
                if sample.name.endswith("_total") and sample.labels["result"] == "unschedulable"
            )
        )

    def exposition(self) -> bytes:
        """All metrics in Prometheus's text format."""
        return generate_latest(self.registry)
