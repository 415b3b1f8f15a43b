"""The rules in force on classes of nodes, as the operator's file gives them.

```yaml
nicSharing: bandwidth            # for all nodes
classes:                         # the first one whose labels a node has; the rest as above
- labels: {pool: radio}
  nicHeadroomPercent: 80
  networks: "${name}@${name}"
```
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rte import errors
from rte.placement.groups.delivery.networks import elements
from rte.placement.groups.delivery.template import render
from rte.placement.groups.document import DocumentValue
from rte.placement.groups.inventory import DEFAULT_POLICY, Policy

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_SECONDS = 86_400
MAX_STEPS = 10_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Policies:
    """The rules of all nodes.

    Attributes:
        default: where no class has the node.
        classes: labels that a node must have, and the rules then.
    """

    default: Policy = DEFAULT_POLICY
    classes: tuple[tuple[tuple[tuple[str, str], ...], Policy], ...] = ()

    @property
    def attach(self) -> bool:
        """Whether pods of some nodes get their NICs attached."""
        return any(policy.networks for policy in (self.default, *(it for _, it in self.classes)))

    def of(self, labels: Mapping[str, str]) -> Policy:
        """The rules of a node with these labels."""
        for wanted, policy in self.classes:
            if all(labels.get(key) == value for key, value in wanted):
                return policy
        return self.default


def read_policies(document: Any) -> Policies:
    """Read the file's content (None: an empty file).

    Raises:
        RequestError: the first fault found.
    """
    root = _PolicyValue("", {} if document is None else document)
    default = root.policy(DEFAULT_POLICY, "classes")
    listed = root.at("classes").members() if "classes" in root.value else []
    return Policies(
        default=default, classes=tuple((each.labels(), each.policy(default)) for each in listed)
    )


class _PolicyValue(DocumentValue):
    """A value of the file."""

    def labels(self) -> tuple[tuple[str, str], ...]:
        if not isinstance(self.value, dict) or not self.value.get("labels"):
            self.fail("missing", "needs labels")
        labels = self.at("labels")
        labels.require(isinstance(labels.value, dict), "type", "must be an object")
        return tuple(sorted((str(key), labels.at(key).text()) for key in labels.value))

    def policy(self, before: Policy, *others: str) -> Policy:
        """The rules, with those of ``before`` where nothing is said."""
        self.require(isinstance(self.value, dict), "type", "must be an object")
        changes: dict[str, Any] = {}
        for key in self.value:
            setting = self.at(key)
            if key in _READERS:
                name, read = _READERS[key]
                changes[name] = read(setting)
            else:
                known = f"is not known; known are {', '.join(_READERS)}"
                setting.require(key in ("labels", *others), "unknown-field", known)
        return replace(before, **changes)

    def rate(self) -> int:
        if isinstance(self.value, float):
            return _PolicyValue(self.path, Decimal(str(self.value))).mbps()
        return self.mbps()

    def seconds(self) -> float:
        if not isinstance(self.value, int | float) or isinstance(self.value, bool):
            self.fail("type", "must be a number")
        self.require(0 <= self.value <= MAX_SECONDS, "value", f"must be 0 to {MAX_SECONDS} seconds")
        return self.value

    def template(self) -> str:
        """A network selection for a function whose facts are all told."""
        text = self.text()
        facts = {"address": "0000:00:00.0", "name": "n", "mac": "m", "pf": "p", "rdma": "r"}
        try:
            elements(render(text, facts))
        except errors.RteError as error:
            self.fail("value", str(error))
        return text

    def kinds(self) -> tuple[str, ...]:
        return tuple(each.one_of(("gpu", "all")) for each in self.members())


_READERS: dict[str, tuple[str, Any]] = {
    "nicHeadroomPercent": ("nic_headroom_percent", lambda it: it.whole(1, 100)),
    "nicMinGbps": ("nic_min_mbps", _PolicyValue.rate),
    "nicSharing": ("nic_sharing", lambda it: it.one_of(("exclusive", "bandwidth"))),
    "settleSeconds": ("settle_seconds", _PolicyValue.seconds),
    "settleFor": ("settle_for", _PolicyValue.kinds),
    "strategy": ("strategy", lambda it: it.one_of(("pack", "spread"))),
    "maxSteps": ("max_steps", lambda it: it.whole(1, MAX_STEPS)),
    "maxImprovementSteps": ("max_improvement_steps", lambda it: it.whole(0, MAX_STEPS)),
    "networks": ("networks", _PolicyValue.template),
}
