"""From objects of the API to the cluster: one entry for each collection that is watched (pure)."""

# ruff: noqa: SLF001 - the table at the end names the methods of the class above it
from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rte import errors, extensions
from rte.placement.dra import decode
from rte.scheduler.cache import gangs
from rte.scheduler.cache.cluster import Cluster
from rte.scheduler.framework import node, objects
from rte.scheduler.framework.claims import devices, storage
from rte.scheduler.framework.events import ClusterEvent, Kind
from rte.scheduler.framework.objects import ObjectReference
from rte.telemetry.quarantine import MalformedObjects

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Collection as Some

    from rte.scheduler.framework.objects import PodView
    from rte.telemetry.effects import Measured, Said

#: An agent that has not renewed its Lease for so long is taken for dead.
AGENT_DEAD_S = 40.0


@dataclass(kw_only=True)
class IntakeResult:
    """What became of one thing that was told.

    Attributes:
        pods: (view before, view now or None when it is gone) of each pod that it was about.
        report: name of the node whose report it was.
        unread: name of a node whose report was passed over, and is needed now.
        malformed: (name, what is wrong) of what could not be read.
        told: what is new about what can be read, for operators.
        author: whose object it is that could not be read, where that is told by nothing else.
    """

    pods: list[tuple[PodView | None, PodView | None]] = field(default_factory=list)
    report: str = ""
    unread: str = ""
    malformed: tuple[str, str] = ("", "")
    told: list[Measured | Said] = field(default_factory=list)
    author: ObjectReference | None = None


class _Shown(NamedTuple):
    """An object as the API shows it; ``age_s``: of a Lease; ``as_of``: of the list it was in."""

    obj: Mapping[str, Any]
    metadata: Mapping[str, Any]
    key: str
    now: float
    age_s: float
    as_of: int
    taken: IntakeResult


class _Missing(NamedTuple):
    """An object that is not there any more."""

    key: str
    now: float
    as_of: int
    taken: IntakeResult


class Intake:
    """Tells the cluster what watches tell.

    Attributes:
        pods_seen: resourceVersion up to which every change of a pod is known.
        instead: what is taken in for a pod.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._reports: dict[str, str] = {}
        #: Nodes of other pools that have a report.
        self._passed_over: set[str] = set()
        self._leases: dict[str, tuple[str, float]] = {}
        self._known: dict[str, set[str]] = {}
        self._malformed = MalformedObjects()
        self.pods_seen = 0
        self.instead: Callable[[PodView], PodView] = lambda view: view

    def seen(
        self,
        collection: str,
        obj: Mapping[str, Any],
        now: float,
        *,
        age_s: float = 0.0,
        as_of: int = 0,
    ) -> IntakeResult:
        """An object as the API shows it.

        ``age_s``: seconds by the wall clock since a Lease was renewed, by its own word. ``as_of``:
        version of the list that it was in, if it was in one.
        """
        metadata = obj.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        key, taken = key_of(collection, metadata), IntakeResult()
        if collection != "pods":
            self._known.setdefault(collection, set()).add(key)
        shown = _Shown(obj, metadata, key, now, age_s, as_of, taken)
        try:
            if COLLECTIONS[collection].seen(self, shown) is False:
                return taken
        except errors.RteError as error:
            parts = (metadata.get("namespace"), metadata.get("name"))
            taken.malformed = ("/".join(str(part) for part in parts if part), str(error))
            taken.author = self._author(collection, key, metadata, taken)
        name, why = taken.malformed
        if why or key in self._malformed.reasons[collection]:
            taken.told = self._malformed.note(collection, key, why, name)
        return taken

    def _author(
        self, collection: str, key: str, metadata: Mapping[str, Any], taken: IntakeResult
    ) -> ObjectReference | None:
        name = str(metadata.get("name") or "")
        if collection == "pods" and not taken.pods:  # one that waits says why
            namespace = str(metadata.get("namespace") or "default")
            return ObjectReference(kind="Pod", name=name, namespace=namespace, uid=key)
        if collection == "reports" and name in self._cluster.nodes:
            info = self._cluster.nodes[name].info
            return ObjectReference(kind="Node", name=name, uid=info.uid if info else "")
        return None

    def gone(self, collection: str, key: str, now: float, as_of: int = 0) -> IntakeResult:
        """An object is not there any more, as of that version of the API (0: unknown)."""
        taken = IntakeResult(told=self._malformed.note(collection, key))
        self._known.get(collection, set()).discard(key)
        COLLECTIONS[collection].gone(self, _Missing(key, now, as_of, taken))
        return taken

    def listed(self, collection: str, found: Some[str], version: int) -> list[str]:
        """A list has ended: keys of what was known before and is :meth:`gone` by it."""
        if collection == "pods":
            self.pods_seen = max(self.pods_seen, version)
            lost = [
                uid
                for uid, pod in self._cluster.pods.items()
                if uid not in found and pod.version <= version
            ]
            known = self._cluster.gangs.terminal.keys() | self._malformed.reasons["pods"].keys()
            lost += [uid for uid in known - self._cluster.pods.keys() if uid not in found]
        else:
            lost = list(self._known.get(collection, set()) - set(found))
        return lost

    def restored(self, collection: str) -> None:
        """Versions begin anew: what the API shows next is newer than all that was told before."""
        if collection == "reports":
            self._reports.clear()
        elif collection == "pods":
            self.pods_seen = 0
            self._cluster.forget_versions()

    def judge_leases(self, now: float) -> None:
        """Look for agents that have fallen silent; to be called each second."""
        for name in self._leases:
            self._judge(name, now)

    # --- pods, nodes, reports --------------------------------------------------------------------

    def _set_pod(self, shown: _Shown) -> bool:
        version = objects.version_of(shown.metadata)
        self.pods_seen = max(self.pods_seen, version)
        known = self._cluster.pods.get(shown.key)
        if known is not None and 0 < version == known.version:
            return False
        shapes = self._cluster.shapes
        try:
            view = objects.read_pod(shown.obj, shapes)
        except errors.ParseError as error:
            # Where a malformed pod waits, it does so with that reason.
            substitute = objects.stand_in(shown.obj, str(error), shapes)
            if substitute is not None:
                self._set_view(substitute, shown)
            raise
        self._set_view(self.instead(view), shown)
        return True

    def _forget_pod(self, missing: _Missing) -> None:
        before = self._cluster.pods.get(missing.key)
        self._cluster.remove_pod(missing.key, missing.now, missing.as_of)
        self._cluster.gangs.gone(missing.key)
        if before is not None:
            missing.taken.pods.append((before, None))

    def _set_view(self, view: PodView, shown: _Shown) -> None:
        before = self._cluster.pods.get(view.uid)
        if self._cluster.set_pod(view, shown.now, shown.as_of):
            shown.taken.pods.append((before, view))

    def _set_node(self, shown: _Shown) -> None:
        try:
            info = objects.read_node(shown.obj, images=self._cluster.shapes.images)
        except errors.ParseError:
            self._cluster.remove_node(shown.key)
            raise
        self._cluster.set_node(info)
        if self._cluster.is_outside(info):
            if self._reports.pop(info.name, None) is not None:
                self._cluster.set_report(info.name, None, shown.now)
                self._passed_over.add(info.name)
        elif info.name in self._passed_over:
            self._passed_over.discard(info.name)
            shown.taken.unread = info.name

    def _set_report(self, shown: _Shown) -> bool:
        name, version = shown.key, str(shown.metadata.get("resourceVersion") or "")
        if version and self._reports.get(name) == version:
            return False
        known = self._cluster.nodes.get(name)
        if known is not None and self._cluster.is_outside(known.info):
            self._passed_over.add(name)
            return True
        self._reports[name] = version
        report = node.read_report(shown.obj, known.report if known else None)
        self._cluster.set_report(name, report, shown.now)
        if name not in self._leases:  # an exporter without a Lease is trusted as it is
            self._cluster.set_alive(name, alive=None)
        shown.taken.report = name
        if report.broken or report.problem:
            raise errors.ParseError("NodeResourceTopology", name, report.broken or report.problem)
        return True

    def _forget_report(self, missing: _Missing) -> None:
        name = missing.key
        self._reports.pop(name, None)
        self._passed_over.discard(name)
        if name in self._cluster.nodes:
            self._cluster.set_report(name, None, missing.now)
        missing.taken.report = name

    def _set_namespace(self, shown: _Shown) -> None:
        self._cluster.set_namespace(shown.key, dict(shown.metadata.get("labels") or {}))

    def _set_budget(self, shown: _Shown) -> None:
        self._cluster.set_budget(shown.key, objects.read_budget(shown.obj))

    def _set_koordinator_devices(self, shown: _Shown) -> None:
        try:
            extensions.load(extensions.PLUGINS, "DeviceShare").check(shown.obj)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            self.gone("koordinator-devices", shown.key, shown.now)
            raise errors.ParseError("Device", shown.key, f"malformed: {error}") from None
        self._cluster.set_koordinator_devices(shown.key, shown.obj)

    def _forget_koordinator_devices(self, missing: _Missing) -> None:
        if missing.key in self._cluster.nodes:
            self._cluster.set_koordinator_devices(missing.key, None)

    def _declare_gang(self, collection: str, shown: _Shown) -> None:
        self._cluster.gangs.declare(collection, shown.obj)

    def _withdraw_gang(self, collection: str, missing: _Missing) -> None:
        self._cluster.gangs.withdraw(collection, missing.key)

    # --- volumes and devices ---

    def _set_claim(self, shown: _Shown) -> None:
        self._cluster.storage.claims[shown.key] = storage.read_claim(shown.obj)
        self._tell(Kind.CLAIM, shown.key)

    def _forget_claim(self, missing: _Missing) -> None:
        self._cluster.storage.claims.pop(missing.key, None)
        self._tell(Kind.CLAIM, missing.key)

    def _set_volume(self, shown: _Shown) -> None:
        volume = storage.read_volume(shown.obj)
        self._change_volume(volume.name, volume)

    def _forget_volume(self, missing: _Missing) -> None:
        self._change_volume(missing.key, None)

    def _change_volume(self, name: str, volume: storage.PersistentVolume | None) -> None:
        known = self._cluster.storage
        before = known.volumes.get(name)
        known.set_volume(name, volume)
        claims = {claim.key for claim in known.claims.values() if claim.volume == name}
        claims.update(each.claim for each in (before, volume) if each is not None and each.claim)
        if claims:
            self._cluster.told(ClusterEvent(Kind.VOLUME, name=name, claims=frozenset(claims)))
        if volume is not None and not volume.claim:  # it is for anybody
            self._cluster.told(ClusterEvent(Kind.VOLUME, name=name))

    def _set_class(self, shown: _Shown) -> None:
        self._cluster.storage.classes[shown.key] = storage.read_class(shown.obj)
        self._tell(Kind.STORAGE_CLASS)

    def _forget_class(self, missing: _Missing) -> None:
        self._cluster.storage.classes.pop(missing.key, None)
        self._tell(Kind.STORAGE_CLASS)

    def _set_driver(self, shown: _Shown) -> None:
        tracked = self._cluster.storage.tracked
        (tracked.add if storage.publishes_capacity(shown.obj) else tracked.discard)(shown.key)
        self._tell(Kind.STORAGE_CLASS)

    def _forget_driver(self, missing: _Missing) -> None:
        self._cluster.storage.tracked.discard(missing.key)
        self._tell(Kind.STORAGE_CLASS)

    def _set_capacity(self, shown: _Shown) -> None:
        self._cluster.storage.capacities[shown.key] = storage.read_capacity(shown.obj)
        self._tell(Kind.STORAGE_CLASS)

    def _forget_capacity(self, missing: _Missing) -> None:
        self._cluster.storage.capacities.pop(missing.key, None)
        self._tell(Kind.STORAGE_CLASS)

    def _set_limits(self, shown: _Shown) -> None:
        self._cluster.storage.csi_nodes[shown.key] = storage.read_csi_node(shown.obj)
        self._cluster.told(ClusterEvent(Kind.CSI_NODE, shown.key))

    def _forget_limits(self, missing: _Missing) -> None:
        self._cluster.storage.csi_nodes.pop(missing.key, None)
        self._cluster.told(ClusterEvent(Kind.CSI_NODE, missing.key))

    def _set_slice(self, shown: _Shown) -> None:
        self._tell(Kind.DEVICE_SUPPLY)
        try:
            self._cluster.devices.fleet.put_slice(decode.resource_slice(shown.obj))
        except errors.ParseError:
            self._cluster.devices.fleet.remove_slice(shown.key)
            raise

    def _forget_slice(self, missing: _Missing) -> None:
        self._cluster.devices.fleet.remove_slice(missing.key)
        self._tell(Kind.DEVICE_SUPPLY)

    def _set_taint_rule(self, shown: _Shown) -> None:
        self._cluster.devices.fleet.put_rule(decode.device_taint_rule(shown.obj))
        self._tell(Kind.DEVICE_SUPPLY)

    def _forget_taint_rule(self, missing: _Missing) -> None:
        self._cluster.devices.fleet.remove_rule(missing.key)
        self._tell(Kind.DEVICE_SUPPLY)

    def _set_device_class(self, shown: _Shown) -> None:
        try:
            self._cluster.set_device_class(shown.key, decode.device_class(shown.obj))
        except errors.ParseError:
            self._cluster.set_device_class(shown.key, None)
            raise

    def _set_device_claim(self, shown: _Shown) -> None:
        # What a malformed claim held when it was last read counts on.
        known, claim = self._cluster.devices, devices.read_claim(shown.obj)
        freed = known.freed
        if known.set_claim(claim, shown.as_of):
            self._device_claim_changed(claim.key, freed=known.freed > freed)

    def _forget_device_claim(self, missing: _Missing) -> None:
        known = self._cluster.devices
        freed = known.freed
        known.remove_claim(missing.key)
        self._device_claim_changed(missing.key, freed=known.freed > freed)

    def _device_claim_changed(self, key: str, *, freed: bool) -> None:
        self._tell(Kind.DEVICE_SUPPLY if freed else Kind.DEVICE_CLAIM, key)

    def _tell(self, kind: Kind, *claims: str) -> None:
        self._cluster.told(ClusterEvent(kind, claims=frozenset(claims)))

    # --- the agents' Leases ----------------------------------------------------------------------

    def _set_lease(self, shown: _Shown) -> None:
        """A Lease was renewed; it is named like its node.

        What a Lease says of time is only believed when it is seen first: later, it is the change
        that counts, by our own clock.
        """
        name, now = shown.key, shown.now
        spec = shown.obj.get("spec") or {}
        renewed = str(spec.get("renewTime") or "")
        before = self._leases.get(name)
        if not spec.get("holderIdentity"):
            self._leases[name] = (renewed, now - 2 * AGENT_DEAD_S)
        elif before is None:
            self._leases[name] = (renewed, now - shown.age_s)
        elif before[0] != renewed:
            self._leases[name] = (renewed, now)
        self._judge(name, now)

    def _judge(self, name: str, now: float) -> None:
        self._cluster.set_alive(name, alive=now - self._leases[name][1] < AGENT_DEAD_S)

    def _forget_lease(self, missing: _Missing) -> None:
        # Somebody deleted it: an agent that lives makes it anew soon, or publishes again.
        if self._leases.pop(missing.key, None) is not None:
            self._cluster.set_alive(missing.key, alive=False)


def _uid(metadata: Mapping[str, Any]) -> str:
    return str(metadata.get("uid") or "")


def _path(metadata: Mapping[str, Any]) -> str:
    return f"{metadata.get('namespace')}/{metadata.get('name')}"


def _name(metadata: Mapping[str, Any]) -> str:
    return str(metadata.get("name") or "")


@dataclass(frozen=True, kw_only=True)
class Collection:
    """One kind of objects that is watched.

    Attributes:
        by: tells items apart, by their metadata.
        seen: takes one in; False: nothing about it is new.
        gone: takes in that one is gone.
        optional: the scheduler begins without it: a role of an earlier release lacks the right.
        rare: served by some clusters only: that it is missing is no news.
    """

    seen: Callable[[Intake, _Shown], bool | None]
    gone: Callable[[Intake, _Missing], None]
    by: Callable[[Mapping[str, Any]], str] = _name
    optional: bool = False
    rare: bool = False


def _of_cluster(forget: Callable[[Cluster, str], None]) -> Callable[[Intake, _Missing], None]:
    return lambda intake, missing: forget(intake._cluster, missing.key)


def _elsewhere(*_: object) -> None:
    """Another machine reads it."""


_rare = partial(Collection, optional=True, rare=True)
_of_kueue = partial(Collection, seen=_elsewhere, gone=_elsewhere, optional=True)


def _gangs(name: str) -> Collection:
    return _rare(
        seen=lambda intake, shown: intake._declare_gang(name, shown),
        gone=lambda intake, missing: intake._withdraw_gang(name, missing),
        by=_path,
    )


#: All of them, by the names that logs and metrics use.
COLLECTIONS: Final[Mapping[str, Collection]] = {
    "namespaces": Collection(
        seen=Intake._set_namespace,
        gone=_of_cluster(lambda known, key: known.set_namespace(key, None)),
    ),
    "nodes": Collection(seen=Intake._set_node, gone=_of_cluster(Cluster.remove_node)),
    "pods": Collection(seen=Intake._set_pod, gone=Intake._forget_pod, by=_uid),
    "leases": Collection(seen=Intake._set_lease, gone=Intake._forget_lease),
    "reports": Collection(seen=Intake._set_report, gone=Intake._forget_report),
    "budgets": Collection(
        seen=Intake._set_budget,
        gone=_of_cluster(lambda known, key: known.set_budget(key, None)),
        by=_path,
    ),
    "claims": Collection(seen=Intake._set_claim, gone=Intake._forget_claim, by=_path),
    "volumes": Collection(seen=Intake._set_volume, gone=Intake._forget_volume),
    "classes": Collection(seen=Intake._set_class, gone=Intake._forget_class),
    "drivers": Collection(seen=Intake._set_driver, gone=Intake._forget_driver, optional=True),
    "limits": Collection(seen=Intake._set_limits, gone=Intake._forget_limits, optional=True),
    "capacities": Collection(
        seen=Intake._set_capacity, gone=Intake._forget_capacity, by=_path, optional=True
    ),
    "slices": _rare(seen=Intake._set_slice, gone=Intake._forget_slice),
    "device-claims": _rare(
        seen=Intake._set_device_claim, gone=Intake._forget_device_claim, by=_path
    ),
    "device-classes": _rare(
        seen=Intake._set_device_class,
        gone=_of_cluster(lambda known, key: known.set_device_class(key, None)),
    ),
    "device-taint-rules": _rare(seen=Intake._set_taint_rule, gone=Intake._forget_taint_rule),
    "koordinator-devices": Collection(
        seen=Intake._set_koordinator_devices, gone=Intake._forget_koordinator_devices
    ),
    **{name: _gangs(name) for name in gangs.COLLECTIONS},
    "kueue-workloads": _of_kueue(by=_path),
    "kueue-checks": _of_kueue(),
    "kueue-flavors": _of_kueue(),
    "claim-templates": _of_kueue(by=_path, rare=True),
}


def key_of(collection: str, metadata: Mapping[str, Any]) -> str:
    """What identifies an item of a collection."""
    return COLLECTIONS[collection].by(metadata)
