"""Which parts of an NRT object are ours, what differs there, and when to stop insisting (pure)."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rte.model.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from rte.reader.json import Json, JsonObject

#: Annotations under this prefix are ours alone, whoever else writes the object.
OWN_PREFIX = "topology.rte.dev/"

_FIELDS = ("topologyPolicies", "attributes", "zones")


def difference(
    stored: Json,
    wanted: Json,
    published: AbstractSet[str] = frozenset(),
    *,
    sharing: bool = False,
    adopts: bool = True,
) -> JsonObject:
    """The merge patch that brings ``stored`` to ``wanted``; empty when nothing of ours differs.

    Lists are replaced whole (they are atomic in this API). ``published`` names annotations of ours
    that may be left over from earlier; those no longer wanted are removed. With ``sharing`` of the
    annotations only those under :data:`OWN_PREFIX` are ours. Labels, foreign annotations, other
    owners and all other fields are never touched; without ``adopts`` no owner is.
    """
    patch: JsonObject = {}
    metadata = _difference_of_metadata(
        stored.get("metadata") or {}, wanted.get("metadata") or {}, published, sharing=sharing
    )
    if adopts:
        owners = _owners(stored.get("metadata") or {}, wanted.get("metadata") or {})
        if owners is not None:
            metadata["ownerReferences"] = owners
    if metadata:
        patch["metadata"] = metadata
    for name in _FIELDS:
        if (wanted.get(name) or []) != (stored.get(name) or []):
            patch[name] = wanted.get(name) or ([] if name == "zones" else None)
    return patch


def _difference_of_metadata(
    stored: Json,
    wanted: Json,
    published: AbstractSet[str],
    *,
    sharing: bool,
) -> JsonObject:
    there: Mapping[str, str] = stored.get("annotations") or {}
    want: Mapping[str, str] = wanted.get("annotations") or {}
    if sharing:
        want = {name: text for name, text in want.items() if name.startswith(OWN_PREFIX)}
    leftovers = {name for name in there if name.startswith(OWN_PREFIX)}
    if not sharing:
        leftovers |= published & there.keys()
    annotations: dict[str, str | None] = {
        name: text for name, text in want.items() if there.get(name) != text
    }
    annotations |= dict.fromkeys(sorted(leftovers - want.keys()))
    patch: JsonObject = {"annotations": annotations} if annotations else {}
    return patch


def _owners(stored: Json, wanted: Json) -> list[Json] | None:
    """Our owners in the place of those of the same name, whose UIDs are gone; None: as they are.

    A Namespace is the owner that NFD gives to its objects: with it the object would outlive its
    Node, and go with an exporter that is none any more.
    """
    ours: list[Json] = wanted.get("ownerReferences") or []
    there: list[Json] = stored.get("ownerReferences") or []

    def names(owner: Json) -> tuple[Any, Any]:
        return owner.get("kind"), owner.get("name")

    if not ours:
        return None
    # The server completes a reference (apiVersion, blockOwnerDeletion); its UID says whose it is.
    known = {owner.get("uid") for owner in ours}
    kept = [owner for owner in there if owner.get("kind") != "Namespace"]
    if not known <= {owner.get("uid") for owner in kept}:
        replaced = {names(owner) for owner in ours}
        return [owner for owner in kept if names(owner) not in replaced] + ours
    return kept if len(kept) < len(there) else None


def owned_by(uid: str, wanted: Json) -> JsonObject:
    """``wanted`` with the Node of that UID as its owner, if a Node owns it; no UID: as it is."""
    metadata = wanted["metadata"]
    owners = metadata.get("ownerReferences") or []
    if not uid or not owners:
        return dict(wanted)
    owners = [{**each, "uid": uid} if each["kind"] == "Node" else each for each in owners]
    return {**wanted, "metadata": {**metadata, "ownerReferences": owners}}


def apply(patch: Json, stored: Json) -> JsonObject:
    """``stored`` after the merge patch (RFC 7386) of :func:`difference`."""
    after = dict(stored)
    for name, value in patch.items():
        if value is None:
            after.pop(name, None)
        elif isinstance(value, dict):
            after[name] = apply(value, after.get(name) or {})
        else:
            after[name] = value
    return after


def annotations_of(stored: Json, manager: str) -> set[str]:
    """The annotations that the field manager ``manager`` wrote, by the server's own records."""
    names: set[str] = set()
    for entry in (stored.get("metadata") or {}).get("managedFields") or []:
        if entry.get("manager") == manager:
            fields = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
            owned = fields.get("f:annotations") or {}
            names |= {key.removeprefix("f:") for key in owned if key.startswith("f:")}
    return names


def last_foreign_writer(stored: Json, ours: str) -> str:
    """The field manager, other than ``ours``, that wrote last; "" when none is recorded."""
    managers = (stored.get("metadata") or {}).get("managedFields") or []
    foreign = [
        (str(entry.get("time") or ""), str(entry.get("manager")))
        for entry in managers
        if entry.get("manager") not in (None, ours)
    ]
    return max(foreign)[1] if foreign else ""


@dataclass
class Tolerance:
    """Tells a rival writer from an accident by how often our part of the object is overwritten.

    What is overwritten is repaired at once. More than ``repairs`` times within ``window_s``: the
    object is shared, so annotations that others write too are left to them; and what is overwritten
    within ``reacts_s`` of a repair, ``reactions`` times in a row, by somebody who watches as we do,
    is repaired after ``waits``; once or twice it is another rival's, or a coincidence.
    Nobody interfered for ``quiet_s``: claim it again; each relapse doubles that, up to a day.
    """

    repairs: int = 5
    window_s: float = 600.0
    quiet_s: float = 600.0
    reacts_s: float = 0.5
    reactions: int = 3
    waits: Backoff = field(default_factory=lambda: Backoff(1.0, 30.0))
    sharing: bool = False
    repair_at: float = -math.inf
    _repaired_at: float = -math.inf
    _overwrites: deque[float] = field(default_factory=deque)
    _last_foreign: float = 0.0
    _relapses: int = 0
    _reactions: int = 0

    def repaired(self, now: float) -> None:
        """Our part is as it should be."""
        self._repaired_at = now

    def foreign_write(self, now: float, *, ours_overwritten: bool) -> bool:
        """Note a write by others; True when it is time to begin sharing."""
        self._last_foreign = now
        if not ours_overwritten:
            return False
        if self.sharing:
            if now - self._repaired_at >= self.reacts_s:
                self._reactions = 0
                self.waits.worked()
                return False
            self._reactions += 1
            if self._reactions >= self.reactions:
                self.repair_at = self._repaired_at + self.waits.failed()
            return False
        self._overwrites.append(now)
        while self._overwrites[0] < now - self.window_s:
            self._overwrites.popleft()
        if len(self._overwrites) <= self.repairs:
            return False
        self.sharing = True
        self._overwrites.clear()
        return True

    def claim_at(self) -> float:
        """When the object may be claimed again; only while sharing."""
        return self._last_foreign + min(self.quiet_s * float(2**self._relapses), 86400.0)

    def claim(self) -> None:
        """End sharing."""
        self.sharing = False
        self.repair_at = -math.inf
        self._relapses += 1
