"""What is known of gangs: how each is described, and who belongs to it (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rte import errors
from rte.k8s import gang as sources
from rte.k8s.gang import Gang, GangKey, GangSource

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rte.scheduler.framework.objects import PodView

#: Collections that describe gangs, and the source that each speaks for. Kubernetes 1.37 serves
#: PodGroups as v1beta1, 1.36 as v1alpha2; the Workload is that of 1.35.
COLLECTIONS: Final[dict[str, GangSource]] = {
    "podgroups": GangSource.POD_GROUP,
    "podgroups-1.36": GangSource.POD_GROUP,
    "workloads-1.35": GangSource.WORKLOAD,
    "podgroups-coscheduling": GangSource.SCHEDULER_PLUGINS,
}

#: Conditions by which a PodGroup of either version says that it was scheduled.
SCHEDULED: Final = ("PodGroupInitiallyScheduled", "PodGroupScheduled")

_READ: Final[dict[GangSource, Callable[[Mapping[str, Any]], Gang]]] = {
    GangSource.POD_GROUP: sources.parse_pod_group,
    GangSource.SCHEDULER_PLUGINS: sources.parse_plugins_pod_group,
}


class GangBook:
    """Gangs by name.

    Attributes:
        pods: gang -> UID -> view, of its pods that are not terminal.
        ended: gang -> UIDs of its pods that ran to their end and are still shown.
        lost: gangs of which a pod has gone before they were whole.
        grouped: gangs that name others with which they are placed together.
        terminal: UID -> gang, of its terminal pods that are still shown.
        whole: gangs of which enough pods have run at the same time.
        changed: gangs whose description has changed since somebody took them.
    """

    def __init__(self) -> None:
        self.pods: dict[GangKey, dict[str, PodView]] = {}
        self.ended: dict[GangKey, set[str]] = {}
        self.terminal: dict[str, GangKey] = {}
        self.lost: set[GangKey] = set()
        self.grouped: set[GangKey] = set()
        self.whole: set[GangKey] = set()
        self.changed: set[GangKey] = set()
        self._failed: dict[GangKey, set[str]] = {}
        self._declared: dict[GangKey, Gang | str] = {}
        self._workloads: dict[str, Mapping[str, Any]] = {}
        #: ``namespace/name`` of a Workload -> the gangs of it that have pods.
        self._in_workloads: dict[str, set[GangKey]] = {}
        self._served_as: dict[GangKey, str] = {}

    # --- descriptions ----------------------------------------------------------------------------

    def declare(self, collection: str, obj: Mapping[str, Any]) -> None:
        """A PodGroup or Workload, as the API shows it.

        Raises:
            errors.ParseError: it is malformed; its pods wait with that reason.
        """
        source = COLLECTIONS[collection]
        key = _key(source, obj.get("metadata") or {})
        if source is GangSource.WORKLOAD:
            self._workloads[f"{key.namespace}/{key.name}"] = obj
            self.changed |= self._in_workloads.get(f"{key.namespace}/{key.name}", set())
            return
        before = self._declared.get(key)
        self._served_as[key] = collection
        if any(_is_met(obj, name) for name in SCHEDULED):
            self.whole.add(key)
        try:
            found = self._declared[key] = _READ[source](obj)
            self._note_group(found)
        except errors.ParseError as error:
            self._declared[key] = str(error)
            raise
        finally:
            if self._declared[key] != before:
                self.changed.add(key)

    def withdraw(self, collection: str, path: str) -> None:
        """A PodGroup or Workload (``namespace/name``) is gone."""
        source = COLLECTIONS[collection]
        namespace, _, name = path.partition("/")
        key = GangKey(source, namespace, name)
        if source is GangSource.WORKLOAD:
            self._workloads.pop(path, None)
            self.changed |= self._in_workloads.get(path, set())
        elif self._served_as.get(key) == collection:
            del self._served_as[key], self._declared[key]
            self.changed.add(key)
            self._tidy(key)

    def gang(self, key: GangKey) -> Gang | str:
        """The gang, or why nothing is known of it."""
        match key.source:
            case GangSource.WORKLOAD:
                return self._in_workload(key)
            case GangSource.KOORDINATOR:
                said = (pod.gang_said for pod in self.pods.get(key, {}).values())
                return next((each for each in said if each is not None), "no pod describes it")
        found = self._declared.get(key)
        return f"there is no PodGroup {key.namespace}/{key.name}" if found is None else found

    def condition(self, key: GangKey) -> str:
        """The type of condition by which the gang's object says whether it was scheduled."""
        if key.source is not GangSource.POD_GROUP or key not in self._served_as:
            return ""
        return SCHEDULED[0] if self._served_as[key] == "podgroups" else SCHEDULED[1]

    def named(self, near: Gang, name: str) -> GangKey:
        """The gang that another one names as ``namespace/name`` (Koordinator's gang groups)."""
        namespace, _, short = name.rpartition("/")
        for source in (near.key.source, GangSource.KOORDINATOR, GangSource.SCHEDULER_PLUGINS):
            key = GangKey(source, namespace or near.key.namespace, short)
            if key in self._declared or key in self.pods:
                return key
        return GangKey(near.key.source, namespace or near.key.namespace, short)

    def _in_workload(self, key: GangKey) -> Gang | str:
        name, group = key.name.split("/")[:2]
        obj = self._workloads.get(_workload(key))
        if obj is None:
            return f"there is no Workload {key.namespace}/{name}"
        try:
            found = sources.parse_workload(obj, key)
        except errors.ParseError as error:
            return str(error)
        return found or f"Workload {key.namespace}/{name} has no group {group}"

    def companions(self, pod: PodView) -> list[PodView]:
        """Who has to go with a pod that is evicted, itself included (disruption mode ``all``)."""
        gang = self.gang(pod.gang) if pod.gang else ""
        if pod.gang is None or isinstance(gang, str) or not gang.is_disrupted_whole:
            return [pod]
        others = self.pods.get(pod.gang, {}).values()
        return [pod, *(each for each in others if each.node and each.uid != pod.uid)]

    # --- members ---------------------------------------------------------------------------------

    def on_pod(self, before: PodView | None, after: PodView | None) -> None:
        """A pod has come, changed or gone."""
        pod = after or before
        if before is not None and after is not None and before.gang not in (None, after.gang):
            self.pods.get(before.gang, {}).pop(before.uid, None)
            self._tidy(before.gang)
        if pod is None or pod.gang is None:
            return
        key, pods = pod.gang, self.pods.setdefault(pod.gang, {})
        if key.source is GangSource.WORKLOAD:
            self._in_workloads.setdefault(_workload(key), set()).add(key)
        if after is not None and not after.terminal:
            pods[after.uid] = after
            if after.gang_said is not None:
                self._note_group(after.gang_said)
            return
        pods.pop(pod.uid, None)
        has_run = pod.started and not pod.rejected
        if after is not None:
            self.terminal[after.uid] = key
            (self.ended if has_run else self._failed).setdefault(key, set()).add(after.uid)
        if key not in self.whole and not (after is not None and has_run):
            self.lost.add(key)
        self._tidy(key)

    def gone(self, uid: str) -> None:
        """A pod that was terminal is not shown any more."""
        key = self.terminal.pop(uid, None)
        if key is not None:
            self.ended.get(key, set()).discard(uid)
            self._failed.get(key, set()).discard(uid)
            self._tidy(key)

    def expunge(self, uid: str) -> None:
        """Nothing is known of the pod any more, however far a change of it has come."""
        self.gone(uid)
        for key in [key for key, members in self.pods.items() if uid in members]:
            del self.pods[key][uid]
            self._tidy(key)

    def _tidy(self, key: GangKey) -> None:
        if self.pods.get(key) or self.ended.get(key) or self._failed.get(key):
            return
        for table in (self.pods, self.ended, self._failed):
            table.pop(key, None)
        inside = self._in_workloads.get(_workload(key), set())
        inside.discard(key)
        if not inside:
            self._in_workloads.pop(_workload(key), None)
        self.lost.discard(key)
        if key not in self._declared:
            self.whole.discard(key)
            self.grouped.discard(key)

    def _note_group(self, gang: Gang) -> None:
        (self.grouped.add if gang.with_gangs else self.grouped.discard)(gang.key)


def _key(source: GangSource, metadata: Mapping[str, Any]) -> GangKey:
    namespace = str(metadata.get("namespace") or "default")
    return GangKey(source, namespace, str(metadata.get("name") or ""))


def _workload(key: GangKey) -> str:
    """``namespace/name`` of the Workload that a gang of it is named after."""
    return f"{key.namespace}/{key.name.split('/')[0]}"


def _is_met(obj: Mapping[str, Any], name: str) -> bool:
    status = obj.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return any(
        isinstance(each, dict) and each.get("type") == name and each.get("status") == "True"
        for each in conditions or ()
    )
