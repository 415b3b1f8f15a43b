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

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


ATTRIBUTE = "nodeTopologyPodsFingerprint"
METHOD_ATTRIBUTE = "nodeTopologyPodsFingerprintMethod"

PREFIX = "pfp0"
VERSION = "v001"


class Method(StrEnum):
    """Which pods of the node count, spelt as in :data:`METHOD_ATTRIBUTE`."""

    ALL = "all"
    EXCLUSIVE = "with-exclusive-resources"


def sign(pods: Iterable[tuple[str, str]]) -> str:
    """The signature of (namespace, name) pairs, in any order."""
    hashes = sorted(
        xxhash.xxh64_intdigest(name.encode(), xxhash.xxh64_intdigest(namespace.encode()))
        for namespace, name in pods
    )
    digest = xxhash.xxh64_hexdigest(struct.pack(f"<{len(hashes)}Q", *hashes))
    return f"{PREFIX}{VERSION}{digest}"


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
