"""Events, which two groups serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.sim.apiserver import status
from rte.sim.apiserver.schema import typed

if TYPE_CHECKING:
    from rte.sim.apiserver.status import Cause
    from rte.sim.apiserver.storage.store import Obj


def validate_event(event: Obj) -> list[Cause]:
    """An event lies in the namespace of what it is about."""
    involved = event["involvedObject"].get("namespace", "")
    if involved and involved != event["metadata"].get("namespace"):
        return [
            status.invalid("involvedObject.namespace", involved, "does not match event.namespace")
        ]
    return []


def validate_new_event(event: Obj) -> list[Cause]:
    """The stricter rules of events.k8s.io/v1 (the object is in core form)."""
    out = validate_event(event)
    wanted = (
        ("eventTime", "eventTime"),
        ("reportingController", "reportingComponent"),
        ("reportingInstance", "reportingInstance"),
        ("action", "action"),
        ("reason", "reason"),
    )
    out += [status.required(path) for path, name in wanted if not event.get(name)]
    if event.get("type") not in ("Normal", "Warning"):
        out.append(status.invalid("type", event.get("type", ""), ""))
    return out


#: events.k8s.io/v1 name -> core/v1 name, where they differ
_EVENT_NAMES = {
    "reportingController": "reportingComponent",
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}


def core_event(event: Obj) -> Obj:
    """An event in the form of the core group, in which it is stored."""
    renamed = {_EVENT_NAMES.get(key, key): value for key, value in event.items()}
    return typed.decode("core/v1.Event", renamed)[0]


def new_event(event: Obj) -> Obj:
    """An event in the form of events.k8s.io/v1."""
    names = {core: new for new, core in _EVENT_NAMES.items()}
    renamed = {names.get(key, key): value for key, value in event.items()}
    decoded, _ = typed.decode("events/v1.Event", renamed)
    return {**decoded, "kind": "Event", "apiVersion": "events.k8s.io/v1"}
