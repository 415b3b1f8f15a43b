"""The agent's metrics, each in a registry of its own; ``docs/metrics.md`` explains them."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import generate_latest

from rte import __version__

_SECONDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5, 30)
_BYTES: Final = (256, 1024, 4096, 16384, 65536, 262144)


class AgentMetrics:
    """What the agent counts. One instance per agent; nothing is global."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        build = Gauge("rte_build_info", "Version of the agent.", ["version"], registry=registry)
        build.labels(__version__).set(1)

        self.changes = Counter(
            "rte_changes",
            "Changes noticed, by the source that changed.",
            ["source"],
            registry=registry,
        )
        self.readings = Counter(
            "rte_readings",
            "Readings of the node: consistent, torn (put off until the next write) or failed.",
            ["result"],
            registry=registry,
        )
        self.reading_seconds = Histogram(
            "rte_reading_seconds",
            "Time to read what changed, account for it and encode the object.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.disagreements = Gauge(
            "rte_disagreements",
            "Contradictions between the kubelet's sources in the last reading.",
            registry=registry,
        )
        self.source_up = Gauge(
            "rte_source_up", "1 while the kubelet can be read, else 0.", registry=registry
        )
        self.synced = Gauge(
            "rte_kubelet_synced",
            "1 once the kubelet has re-admitted its pods after its last start, else 0.",
            registry=registry,
        )
        self.kubelet_restarts = Counter(
            "rte_kubelet_restarts", "Restarts of the kubelet noticed.", registry=registry
        )
        self.podresources_failures = Counter(
            "rte_podresource_api_call_failures",
            "Failed calls of the kubelet's podresources API.",
            ["function_name"],
            registry=registry,
        )
        self.writes = Counter(
            "rte_noderesourcetopology_writes",
            "Successful writes of the NodeResourceTopology object.",
            ["operation", "trigger"],
            registry=registry,
        )
        self.write_failures = Counter(
            "rte_noderesourcetopology_write_failures",
            "Refused or unanswered requests for it, by HTTP status (0: no answer).",
            ["status"],
            registry=registry,
        )
        self.write_bytes = Histogram(
            "rte_noderesourcetopology_write_bytes",
            "Size of what was sent with a write.",
            buckets=_BYTES,
            registry=registry,
        )
        self.publish_seconds = Histogram(
            "rte_publish_seconds",
            "Time from an observation to its acceptance by the sink.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.last_publish = Gauge(
            "rte_last_publish_timestamp_seconds",
            "When the sink last confirmed the current state (Unix time).",
            registry=registry,
        )
        self.foreign_overwrites = Counter(
            "rte_foreign_overwrites",
            "Times that another writer changed or deleted our part of the object.",
            registry=registry,
        )
        self.sharing = Gauge(
            "rte_sharing",
            "1 while another permanent writer keeps us to our own annotations, else 0.",
            registry=registry,
        )
        self.config_source = Gauge(
            "rte_kubelet_config_source",
            "1 for the source of the kubelet's configuration that is in force, else 0.",
            ["source"],
            registry=registry,
        )
        self.left_out = Gauge(
            "rte_annotation_left_out",
            "1 while an annotation is left out because the object would be too large.",
            ["annotation"],
            registry=registry,
        )
        self.pod_watch = Gauge(
            "rte_pod_watch_up",
            "1 while endings come from a pod watch, 0 while podresources is polled instead.",
            registry=registry,
        )
        self.malformed = Gauge(
            "rte_malformed",
            "Files and objects of others that cannot be read now, by kind.",
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
        self.lease_renewals = Counter(
            "rte_lease_renewals",
            "Renewals of the node's Lease: renewed, failed or withheld.",
            ["result"],
            registry=registry,
        )
        self.lease_alive = Gauge(
            "rte_lease_alive",
            "1 while schedulers take this agent for alive by its Lease, else 0.",
            registry=registry,
        )
        self.turned_away = Counter(
            "rte_connections_turned_away",
            "Connections to our listener that found too many others: one of them was closed.",
            registry=registry,
        )
        self.predictions = Counter(
            "rte_predictions",
            "Admissions and refusals compared with what was predicted from the state before.",
            registry=registry,
        )
        self.prediction_differences = Counter(
            "rte_prediction_differences",
            "Of these, otherwise than was certain: other_cpus, other_zone, refused or admitted.",
            ["result"],
            registry=registry,
        )

        # What is rare has a series from the start, so that its first increase can be seen.
        for renewal in ("renewed", "failed", "withheld"):
            self.lease_renewals.labels(renewal)
        self.write_failures.labels("0")
        self.podresources_failures.labels("list")

    def exposition(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
