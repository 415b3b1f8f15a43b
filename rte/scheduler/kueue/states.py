"""What is written of AdmissionChecks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rte.scheduler.kueue.objects import RETRY

if TYPE_CHECKING:
    from rte.reader.json import JsonObject
    from rte.scheduler.kueue.objects import AdmissionCheck, CheckState

#: Kueue is asked to come again after so long at most.
MOST_BACK_OFF_S = 60

#: Longest message; the API takes 32,768 characters.
_MOST_TEXT = 1_024


def item(check: CheckState, state: str, text: str, now: float) -> JsonObject:
    """An item of a Workload's ``status.admissionChecks``."""
    lasts = check.last_transition_time if check.state == state else None
    body: JsonObject = {
        "name": check.name,
        "state": state,
        "message": cut(text),
        "lastTransitionTime": lasts or _moment(now),
    }
    if state == RETRY:
        # Doubled with each time; Kueue counts them.
        seconds = 2 ** min(check.retry_count or 0, 16)
        body["requeueAfterSeconds"] = min(seconds, MOST_BACK_OFF_S)
    return body


def cut(text: str) -> str:
    """A message as it is written."""
    return text[:_MOST_TEXT]


def activity(check: AdmissionCheck, now: float) -> dict[str, str]:
    """The condition Active of an AdmissionCheck."""
    status, reason, message = "True", "Active", "the check is decided about by fit into zones"
    if check.has_parameters:
        status, reason, message = "False", "BadParametersRef", "the check takes no parameters"
    return {
        "type": "Active",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": _moment(now),
    }


def _moment(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
