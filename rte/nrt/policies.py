"""Topology Manager settings in an NRT: attributes, and the strings of older consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
