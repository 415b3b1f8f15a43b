"""Attributes of an NRT: Topology Manager settings, with the strings of older consumers; which pods
it accounts for, as one short signature (pod fingerprint v1).


NodeResourceTopologyMatch compares the published signature with the one it computes over the pods
that it knows on the node, and trusts the NRT only when both are equal. A pod is its namespace and
name alone; duplicates count (k8stopologyawareschedwg/podfingerprint).
"""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import TYPE_CHECKING

import xxhash

from rte.model.pod import QOS, ContainerKind
from rte.placement.foreign.zones import is_native
from rte.placement.kubelet.demand import is_memory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from rte.model.pod import Container, Pod

ATTRIBUTE = "nodeTopologyPodsFingerprint"
METHOD_ATTRIBUTE = "nodeTopologyPodsFingerprintMethod"
#: Where exporters older than the attribute wrote the signature.
ANNOTATION = "topology.node.k8s.io/fingerprint"

PREFIX = "pfp0"
VERSION = "v001"


class Method(StrEnum):
    """Which pods of the node count, spelt as in :data:`METHOD_ATTRIBUTE`."""

    ALL = "all"
    EXCLUSIVE = "with-exclusive-resources"


class SignatureVerdict(StrEnum):
    """What a comparison of two signatures says."""

    OK = "ok"
    MISMATCH = "mismatch"
    MALFORMED = "malformed"
    VERSION = "version"


def sign(pods: Iterable[tuple[str, str]]) -> str:
    """The signature of (namespace, name) pairs, in any order."""
    hashes = sorted(
        xxhash.xxh64_intdigest(name.encode(), xxhash.xxh64_intdigest(namespace.encode()))
        for namespace, name in pods
    )
    digest = xxhash.xxh64_hexdigest(struct.pack(f"<{len(hashes)}Q", *hashes))
    return f"{PREFIX}{VERSION}{digest}"


def check(candidate: str, expected: str) -> SignatureVerdict:
    """Compare a signature read from an object with the one computed here."""
    if len(candidate.encode(errors="replace")) < 16 or candidate[:4] != PREFIX:
        return SignatureVerdict.MALFORMED
    if candidate[4:8] != VERSION:
        return SignatureVerdict.VERSION
    return SignatureVerdict.OK if candidate == expected else SignatureVerdict.MISMATCH


def exclusive_containers(pod: Pod, nrt_resources: AbstractSet[str]) -> list[str]:
    """Containers that NodeResourceTopologyMatch takes for holders of exclusive resources.

    Sidecars come before app containers; ordinary init containers never count, because podresources
    does not report them. ``nrt_resources``: every resource that any zone of the node's NRT lists.
    """
    kinds = (ContainerKind.SIDECAR, ContainerKind.APP)
    return [
        container.name
        for kind in kinds
        for container in pod.containers
        if container.kind is kind and _is_exclusive(pod.qos, container, nrt_resources)
    ]


def _is_exclusive(qos: QOS, container: Container, nrt_resources: AbstractSet[str]) -> bool:
    return any(
        _is_exclusive_request(qos, name, amount, nrt_resources)
        for name, amount in container.requests.items()
    )


def _is_exclusive_request(
    qos: QOS, name: str, amount: int, nrt_resources: AbstractSet[str]
) -> bool:
    """A device counts by its name alone, even when none is requested (as upstream)."""
    if not is_native(name):
        return name in nrt_resources
    if qos is not QOS.GUARANTEED or amount <= 0:
        return False
    if name == "cpu":
        return amount % 1000 == 0
    return is_memory(name)


POLICY_ATTRIBUTE = "topologyManagerPolicy"
SCOPE_ATTRIBUTE = "topologyManagerScope"
MAX_ZONES_ATTRIBUTE = "topologyManagerMaxNUMANodes"
#: The kubelet's option that MAX_ZONES_ATTRIBUTE publishes.
MAX_ZONES_OPTION = "max-allowable-numa-nodes"

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
SCOPES = ("container", "pod")

#: (policy, scope) -> element of the deprecated ``topologyPolicies``.
LEGACY = {
    (policy, scope): f"{policy_word}{scope_word}Level"
    for policy, policy_word in (
        ("best-effort", "BestEffort"),
        ("restricted", "Restricted"),
        ("single-numa-node", "SingleNUMANode"),
    )
    for scope, scope_word in (("container", "Container"), ("pod", "Pod"))
}
_FROM_LEGACY = {text: settings for settings, text in LEGACY.items()}


def legacy(policy: str, scope: str) -> str:
    """The ``topologyPolicies`` element; ``None`` for all that it cannot say."""
    return LEGACY.get((policy, scope), "None")


def resolve(
    attributes: Iterable[tuple[str, str]], topology_policies: Sequence[str] = ()
) -> tuple[str, str]:
    """(policy, scope) of an NRT, as NodeResourceTopologyMatch reads it.

    The first legacy string counts, attributes override it one by one, the last valid one of several
    wins; what is not valid says nothing.
    """
    policy, scope = "none", "container"
    if topology_policies:
        policy, scope = _FROM_LEGACY.get(topology_policies[0], (policy, scope))
    for name, value in attributes:
        if name == POLICY_ATTRIBUTE and value in POLICIES:
            policy = value
        elif name == SCOPE_ATTRIBUTE and value in SCOPES:
            scope = value
    return policy, scope
