"""Fields of the PodSpec that other parts honour, or that do not decide where a pod may go."""

from __future__ import annotations

from rte.scheduler.framework.plugin import Plugin

#: Kinds of volumes that every node can have, or that only its kubelet knows how to.
_LOCAL_VOLUMES = (
    "azureFile",
    "cephfs",
    "configMap",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gitRepo",
    "glusterfs",
    "hostPath",
    "image",
    "nfs",
    "photonPersistentDisk",
    "projected",
    "quobyte",
    "scaleIO",
    "secret",
    "storageos",
    "vsphereVolume",
)


class PrioritySort(Plugin):
    """The order of the queue (:mod:`rte.scheduler.queue`)."""

    name = "PrioritySort"
    owns = frozenset({"priority", "priorityClassName"})
    says = "the queue: by priority, then by age"


class SchedulingGates(Plugin):
    """A gated pod is not in the queue (KEP-3521)."""

    name = "SchedulingGates"
    owns = frozenset({"schedulingGates"})
    says = "a pod waits outside of the queue until its gates are gone"


class DefaultBinder(Plugin):
    """What is written when a decision is carried out."""

    name = "DefaultBinder"
    owns = frozenset({"schedulerName", "nodeName"})
    says = "pods of our name that have no node are bound by the binding subresource"


class DefaultPreemption(Plugin):
    """Room by eviction (:mod:`rte.scheduler.plugins.default_preemption`)."""

    name = "DefaultPreemption"
    owns = frozenset({"preemptionPolicy", "terminationGracePeriodSeconds"})
    says = "victims of lower priority, by prediction; the nomination lasts as long as they may take"


class DrainReservation(Plugin):
    """A node that drains (:mod:`rte.scheduler.loop.promises`)."""

    name = "Reservation"
    owns = frozenset({"restartPolicy"})
    says = "pods that a controller would have run for ever are not waited for"


class KubeletOnly(Plugin):
    """What the kubelet, the runtime or the API server make of a pod that has its node."""

    name = "KubeletOnly"
    owns = frozenset(
        {
            "activeDeadlineSeconds",
            "automountServiceAccountToken",
            "dnsConfig",
            "dnsPolicy",
            "enableServiceLinks",
            "ephemeralContainers",
            "evictionResponders",
            "hostAliases",
            "hostIPC",
            "hostPID",
            "hostname",
            "hostnameOverride",
            "imagePullSecrets",
            "os",
            "readinessGates",
            "runtimeClassName",
            "securityContext",
            "serviceAccount",
            "serviceAccountName",
            "setHostnameAsFQDN",
            "shareProcessNamespace",
            "subdomain",
            *(f"volumes.{kind}" for kind in _LOCAL_VOLUMES),
        }
    )
    says = "does not decide where a pod may go"
