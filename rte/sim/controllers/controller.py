"""What all controllers share: look at everything whenever something changed, and bring it in line.

Objects of one cluster in one process are few, so a controller keeps nothing between two looks. Its
writes wake it again until nothing is left to do.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import zlib
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from rte.sim.apiserver import DeleteOptions, StatusError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rte.sim.apiserver import API

Obj = dict[str, Any]
#: Label of pods: the template that they were made from.
REVISION = "controller-revision-hash"
_HASH_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class Controller:
    """One control loop; ``watched`` names the resources whose changes wake it.

    Args:
        api: the objects.
    """

    watched: ClassVar[tuple[str, ...]] = ()
    #: Messages of the events about pods that were made and deleted.
    made: ClassVar[str] = "Created pod: {pod}"
    dropped: ClassVar[str] = "Deleted pod: {pod}"

    def __init__(self, api: API) -> None:
        self.api = api

    async def run(self) -> None:
        """Work until cancelled."""
        changed = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for name in self.watched:
                group.create_task(self._follow(name, changed), name=f"controller: {name}")
            seconds: float | None = 0.0
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await changed.wait()
                changed.clear()
                seconds = self.sync()

    async def _follow(self, name: str, changed: asyncio.Event) -> None:
        while True:
            watch = self.api.watch(name)
            changed.set()
            while await watch.batch():
                changed.set()

    def sync(self) -> float | None:
        """One look at everything; seconds until the next one is due even if nothing changes."""
        raise NotImplementedError

    def set_status(self, resource: str, obj: Obj, status: Obj) -> None:
        """Write a status if it is another one; a newer version of the object wakes us anyway."""
        if status == (obj.get("status") or {}):
            return
        metadata = obj["metadata"]
        with contextlib.suppress(StatusError):
            self.api.update(
                resource, {**obj, "status": status}, metadata["namespace"], subresource="status"
            )

    def delete(self, resource: str, obj: Obj, *, propagation: str | None = None) -> None:
        """Delete an object, if it is still the same."""
        metadata = obj["metadata"]
        options = DeleteOptions(uid=metadata["uid"], propagation=propagation)
        with contextlib.suppress(StatusError):
            self.api.delete(resource, metadata["name"], metadata.get("namespace", ""), options)

    def record(self, source: str, obj: Obj, reason: str, message: str) -> None:
        """An event about an object."""
        metadata = obj["metadata"]
        now = self.api.now()
        event = {
            "metadata": {"generateName": f"{metadata['name']}."},
            "involvedObject": {
                "kind": obj["kind"], "apiVersion": obj["apiVersion"], "name": metadata["name"],
                "namespace": metadata["namespace"], "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "reason": reason, "message": message, "type": "Normal", "count": 1,
            "firstTimestamp": now, "lastTimestamp": now,
            "source": {"component": source}, "reportingComponent": source,
        }  # fmt: skip
        with contextlib.suppress(StatusError):  # its namespace may be about to go
            self.api.create("events", event, metadata["namespace"])

    def make_pod(
        self,
        owner: Obj,
        source: str,
        *,
        labels: Obj | None = None,
        spec: Obj | None = None,
        **more: Any,
    ) -> Obj:
        """Create a pod from the template of its owner, with ``more`` in its metadata.

        Raises:
            StatusError: the API server refuses it.
        """
        template = owner["spec"]["template"]
        metadata = {
            key: template["metadata"][key]
            for key in ("labels", "annotations", "finalizers")
            if key in template["metadata"]
        }
        metadata["labels"] = {**metadata.get("labels", {}), **(labels or {})}
        metadata["annotations"] = {**metadata.get("annotations", {}), **more.pop("annotations", {})}
        metadata["generateName"] = f"{owner['metadata']['name']}-"
        metadata["ownerReferences"] = [owner_reference(owner)]
        metadata |= more
        pod = {"metadata": metadata, "spec": spec or template["spec"]}
        made = self.api.create("pods", pod, owner["metadata"]["namespace"])
        names = {"pod": made["metadata"]["name"], "owner": owner["metadata"]["name"]}
        self.record(source, owner, "SuccessfulCreate", self.made.format(**names))
        return made

    def drop_pod(self, owner: Obj, pod: Obj, source: str) -> None:
        """Delete a pod of an owner."""
        self.delete("pods", pod)
        names = {"pod": pod["metadata"]["name"], "owner": owner["metadata"]["name"]}
        self.record(source, owner, "SuccessfulDelete", self.dropped.format(**names))


def template_hash(owner: Obj) -> str:
    """What tells the pods of one template from those of another."""
    template = owner["spec"]["template"]
    number = zlib.crc32(orjson.dumps(template, option=orjson.OPT_SORT_KEYS))
    mark = ""
    while number:
        number, rest = divmod(number, len(_HASH_LETTERS))
        mark += _HASH_LETTERS[rest]
    return mark


def share(value: int | str, of: int, *, up: bool) -> int:
    """A number, or a percentage of another one."""
    if isinstance(value, int):
        return value
    exact = int(value.removesuffix("%")) * of / 100
    return math.ceil(exact) if up else math.floor(exact)


def owner_reference(owner: Obj) -> Obj:
    """What an object says of the controller that made it."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owned_by(owner: Obj, objects: Iterable[Obj]) -> list[Obj]:
    """Those that an owner controls."""
    return [each for each in objects if controller_of(each) == owner["metadata"]["uid"]]


def controller_of(obj: Obj) -> str:
    """UID of the controller of an object; "" if it has none."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return next((str(one["uid"]) for one in owners if one.get("controller")), "")


def is_leaving(obj: Obj) -> bool:
    """Whether it is being deleted."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def has_ended(pod: Obj) -> bool:
    """Whether its containers have ended for good."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def ready_since(pod: Obj) -> datetime:
    """Since when a pod that is ready serves."""
    conditions = pod["status"].get("conditions") or ()
    return moment(next(one["lastTransitionTime"] for one in conditions if one["type"] == "Ready"))


def moment(text: str) -> datetime:
    """A time of an object."""
    return datetime.fromisoformat(text)


def with_condition(conditions: Iterable[Mapping[str, Any]], new: Obj, **moments: str) -> list[Obj]:
    """Conditions with one set; its times are kept as long as it says the same."""
    out = [dict(one) for one in conditions]
    for index, old in enumerate(out):
        if old["type"] != new["type"]:
            continue
        if all(old.get(key) == value for key, value in new.items()):
            return out
        kept = dict(moments)
        if old["status"] == new["status"]:
            kept["lastTransitionTime"] = old.get("lastTransitionTime", kept["lastTransitionTime"])
        out[index] = {**new, **kept}
        return out
    return [*out, {**new, **moments}]


def seconds_until(moment: datetime, now: datetime) -> float:
    """Never negative."""
    return max(0.0, (moment - now).total_seconds())
