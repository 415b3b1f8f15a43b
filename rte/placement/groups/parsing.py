"""The request annotation as a :class:`GroupsRequest`; every fault has a code and a path."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

from rte import errors
from rte.model import quantity
from rte.placement.groups.document import DocumentValue, RequestError
from rte.placement.groups.request import (
    ANNOTATION,
    SMT,
    VERSION,
    CPUClass,
    GPUWish,
    GroupsRequest,
    GroupWish,
    Misc,
    NICWish,
    QueueWish,
    SMTByKind,
    words,
)
from rte.reader import jsontext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_GROUPS, MAX_GPUS, MAX_NICS, MAX_CPUS = 32, 64, 32, 4096
MAX_PAGES = 2**31 - 1

MAPPINGS = ("numa", "pcie", "none")
SCOPES = ("switch", "root")
SMT_RULES = ("share", "isolate")

#: CPU architectures by the names that compilers use, without separators.
CPU_ARCHITECTURES = frozenset(
    {
        "any",
        *("haswell", "broadwell", "skylake", "cascadelake", "cooperlake", "icelake"),
        *("sapphirerapids", "emeraldrapids", "graniterapids", "sierraforest"),
        *("naples", "rome", "milan", "milanx", "genoa", "genoax", "bergamo", "siena", "turin"),
        *("neoversen1", "neoversen2", "neoversev1", "neoversev2"),
    }
)

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
_PAGE_SIZE = re.compile(r"[1-9][0-9]{0,8}(Ki|Mi|Gi)", re.ASCII)


def parse_request(text: str) -> GroupsRequest:
    """Parse the annotation.

    Raises:
        RequestError: the first fault found.
    """
    try:
        document = jsontext.exact(text, ANNOTATION, _JSONObject)
    except errors.MalformedError as error:
        why = f"has {error.why}" if error.limit else "is not JSON"
        raise RequestError("syntax", "", why) from error
    return _RequestValue("", document).request()


def check_pages(request: GroupsRequest, asked: Mapping[str, int]) -> None:
    """Check that the pod's containers ask for the pages that the request names.

    Args:
        request: the pod's.
        asked: page size -> pages, summed up over the containers.

    Raises:
        RequestError: they differ (code ``mismatch``).
    """
    wanted = request.all_pages()
    for size in sorted(set(wanted) | set(asked)):
        if wanted[size] != asked.get(size, 0):
            why = f"{wanted[size]} pages, but the containers ask for {asked.get(size, 0)}"
            raise RequestError("mismatch", f"hugepages.{size}", why)


class _JSONObject(dict[str, Any]):
    """A JSON object that remembers a key which was there twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated = ""
        if len(self) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            self.repeated = next(key for key, count in counts.items() if count > 1)


class _RequestValue(DocumentValue):
    """A value of the JSON document."""

    # The shapes of JSON.

    def fields(self, *known: str, free: tuple[str, ...] = ()) -> None:
        """Check that this is an object of these fields; ``free`` ones and ``x-`` are not read."""
        self._object()
        for key in self.value:
            is_known = key in known or key in free or key.startswith("x-")
            self.at(key).require(is_known, "unknown-field", "is not known")

    def _object(self) -> None:
        self.require(isinstance(self.value, _JSONObject), "type", "must be an object")
        self.at(self.value.repeated).require(not self.value.repeated, "duplicate", "is there twice")

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def get(self, key: str, read: Callable[[_RequestValue], Any], default: Any) -> Any:
        return read(self.at(key)) if key in self else default

    # The parts of a request.

    def request(self) -> GroupsRequest:
        self.require(isinstance(self.value, _JSONObject), "type", "must be an object")
        version = self.at("version")
        version.require("version" in self, "missing", "is missing")
        is_ours = type(version.value) is int and version.value == VERSION
        version.require(is_ours, "version", f"must be {VERSION}")
        self.fields(
            "version", "mapping", "pcieScope", "nodeGroups", "cpuArch", "hugepages",
            "hugepagesPlacement", "misc", "groups", free=("render", "params"),
        )  # fmt: skip
        mapping = self.get("mapping", _RequestValue.mapping, "numa")
        scope = self.get("pcieScope", _RequestValue.scope, "switch")
        groups = self.get("groups", lambda it: it.groups(mapping, scope), ())
        request = GroupsRequest(
            groups=groups,
            node_groups=self.get("nodeGroups", _RequestValue.names, ("default",)),
            cpu_arch=self.get("cpuArch", _RequestValue.architectures, ("any",)),
            hugepages=self.get("hugepages", _RequestValue.pages, {}),
            strict_pages=self.get("hugepagesPlacement", _RequestValue.placement, "prefer")
            == "strict",
            misc=self.get("misc", _RequestValue.misc, Misc()),
        )
        self.require(groups or request.misc.count or request.hugepages, "empty", "asks for nothing")
        self._limit("groups", len(groups), MAX_GROUPS)
        self._limit("GPUs", sum(len(group.gpus) for group in groups), MAX_GPUS)
        self._limit("NICs", sum(len(group.nics) for group in groups), MAX_NICS)
        cpus = request.misc.count + sum(group.cpu_count() for group in groups)
        self._limit("CPUs", cpus, MAX_CPUS)
        return request

    def _limit(self, what: str, count: int, most: int) -> None:
        self.require(count <= most, "limit", f"more than {most} {what}")

    def mapping(self) -> str:
        return self.one_of(MAPPINGS)

    def scope(self) -> str:
        return self.one_of(SCOPES)

    def placement(self) -> str:
        return self.one_of(("prefer", "strict"))

    def smt(self) -> SMT:
        return cast("SMT", self.one_of(SMT_RULES))

    def names(self) -> tuple[str, ...]:
        """A list of names, ascending, each once."""
        names = {name.non_empty() for name in self.members()}
        self.require(names, "empty", "must not be empty")
        return tuple(sorted(names))

    def non_empty(self) -> str:
        text = self.text()
        self.require(text, "value", "must not be empty")
        return text

    def architectures(self) -> tuple[str, ...]:
        for name in self.members():
            name.require(name.text() in CPU_ARCHITECTURES, "value", "is not known")
        return self.names()

    def pages(self) -> dict[str, int]:
        """Pages by size; sizes in Kubernetes' canonical text, counts of 0 left out."""
        self._object()
        pages: dict[str, int] = {}
        for key in self.value:
            entry = self.at(key)
            entry.require(
                _PAGE_SIZE.fullmatch(key), "value", "must be a page size such as 2Mi or 1Gi"
            )
            size = quantity.page_size(quantity.parse(key))
            entry.require(size not in pages, "duplicate", "is there twice")
            pages[size] = entry.whole(0, MAX_PAGES)
        return {size: count for size, count in pages.items() if count}

    def misc(self) -> Misc:
        self.fields("count", "smt", "mapping")
        return Misc(
            count=self.get("count", lambda it: it.whole(0, MAX_CPUS), 0),
            smt=self.get("smt", _RequestValue.smt, "share"),
            mapping=self.get("mapping", lambda it: it.one_of(("numa", "none")), "numa"),
        )

    def helpers(self) -> CPUClass:
        self.fields("count", "smt")
        return CPUClass(
            count=self.get("count", lambda it: it.whole(0, MAX_CPUS), 0),
            smt=self.get("smt", _RequestValue.smt, "share"),
        )

    def group_smt(self) -> SMT | SMTByKind:
        if not isinstance(self.value, _JSONObject):
            return self.smt()
        kinds = ("feeders", "queues", "workers")
        self.fields(*kinds)
        return SMTByKind(**{kind: self.at(kind).smt() for kind in kinds if kind in self})

    def groups(self, mapping: str, scope: str) -> tuple[GroupWish, ...]:
        groups: list[GroupWish] = []
        for entry in self.members():
            group, count = entry.group(mapping, scope)
            if count == 1:
                groups.append(group)
            else:
                groups += (replace(group, name=f"{group.name}-{i}") for i in range(count))
        seen: set[str] = set()
        for group in groups:
            self.require(group.name not in seen, "duplicate", f"group {group.name} is there twice")
            seen.add(group.name)
        return tuple(groups)

    def group(self, mapping: str, scope: str) -> tuple[GroupWish, int]:
        self.fields(
            "name", "count", "mapping", "pcieScope", "smt", "gpus", "nics", "queues", "workers",
            "helpers", "hugepages", free=("params",),
        )  # fmt: skip
        self.at("name").require("name" in self, "missing", "is missing")
        queues: list[tuple[QueueWish, bool]] = self.get("queues", _RequestValue.queues, [])
        nics: list[NICWish] | None = self.get("nics", _RequestValue.nics, None)
        group = GroupWish(
            name=self.at("name").label(),
            mapping=self.get("mapping", _RequestValue.mapping, mapping),
            scope=self.get("pcieScope", _RequestValue.scope, scope),
            smt=self.get("smt", _RequestValue.group_smt, "share"),
            gpus=self.get("gpus", _RequestValue.gpus, ()),
            workers=self.get("workers", lambda it: it.whole(0, MAX_CPUS), 0),
            helpers=self.get("helpers", _RequestValue.helpers, CPUClass()),
            hugepages=self.get("hugepages", _RequestValue.pages, {}),
            **self._join(queues, nics),
        )
        count = self.get("count", lambda it: it.whole(1, MAX_GROUPS), 1)
        self.require(
            group.gpus or group.nics or group.hugepages or group.cpu_count(),
            "empty",
            "asks for nothing",
        )
        return group, count

    def label(self) -> str:
        text = self.text()
        is_label = len(text) <= 63 and _LABEL.fullmatch(text)
        self.require(is_label, "value", "must be a lower-case DNS name")
        return text

    def _join(
        self, queues: list[tuple[QueueWish, bool]], nics: list[NICWish] | None
    ) -> dict[str, Any]:
        """Queues with the NIC that each is on, NICs with the demand of their queues."""
        if nics is None:
            nics = [NICWish()] if any(queue.rx or queue.tx for queue, _ in queues) else []
        joined: list[QueueWish] = []
        for i, (queue, told) in enumerate(queues):
            nic = queue.nic if queue.nic is not None else 0
            if nic < len(nics):
                wish = nics[nic]
                nics[nic] = replace(wish, rx=wish.rx + queue.rx, tx=wish.tx + queue.tx)
                joined.append(replace(queue, nic=nic))
            elif (told and nic) or queue.rx or queue.tx:
                _RequestValue(f"{self.path}.queues[{i}].nic", nic).fail(
                    "reference", "names no entry of nics"
                )
            else:
                joined.append(replace(queue, nic=None))
        return {"queues": tuple(joined), "nics": tuple(nics)}

    def queues(self) -> list[tuple[QueueWish, bool]]:
        """The queues, and for each whether it names its NIC itself."""
        queues = []
        for entry in self.members():
            entry.fields("rx", "tx", "nic", "cpus")
            queue = QueueWish(
                rx=entry.get("rx", _RequestValue.mbps, 0),
                tx=entry.get("tx", _RequestValue.mbps, 0),
                nic=entry.get("nic", lambda it: it.whole(0, MAX_NICS - 1), None),
                cpus=cast("Literal[1, 2]", entry.get("cpus", lambda it: it.whole(1, 2), 2)),
            )
            queues.append((queue, "nic" in entry))
        return queues

    def nics(self) -> list[NICWish]:
        return [entry.nic() for entry in self.members()]

    def nic(self) -> NICWish:
        self.fields("gbps", "exclusive", "redundant", "minGbps", "kind", "rdma")
        rx, tx = self.get("gbps", _RequestValue.rates, (0, 0))
        return NICWish(
            rx=rx,
            tx=tx,
            exclusive=self.get("exclusive", _RequestValue.truth, False),
            redundant=self.get("redundant", _RequestValue.truth, False),
            min_mbps=self.get("minGbps", _RequestValue.mbps, 0),
            kind=self.get("kind", lambda it: it.one_of(("any", "pf", "vf")), "any"),
            rdma=self.get("rdma", _RequestValue.truth, False),
        )

    def rates(self) -> tuple[int, int]:
        self.fields("rx", "tx")
        return self.get("rx", _RequestValue.mbps, 0), self.get("tx", _RequestValue.mbps, 0)

    def gpus(self) -> tuple[GPUWish, ...]:
        gpus: list[GPUWish] = []
        for entry in self.members():
            entry.fields("count", "feeders", "match")
            wish = GPUWish(
                feeders=entry.get("feeders", lambda it: it.whole(0, MAX_GPUS), 0),
                **entry.get("match", _RequestValue.match, {}),
            )
            gpus += [wish] * entry.get("count", lambda it: it.whole(1, MAX_GPUS), 1)
        return tuple(gpus)

    def match(self) -> dict[str, Any]:
        self.fields("model", "memoryGiB")
        return {
            "models": self.get("model", _RequestValue.models, ()),
            "memory_gib": self.get("memoryGiB", lambda it: it.whole(1, 4096), 0),
        }

    def models(self) -> tuple[str, ...]:
        """Model names in ascending order; none where ``any`` is among them."""
        names = self.value if isinstance(self.value, list) else [self.value]
        self.require(
            all(isinstance(name, str) for name in names),
            "type",
            "must be a text or a list of texts",
        )
        self.require(names and all(map(words, names)), "value", "must name a model")
        return () if "any" in map(str.lower, names) else tuple(sorted(set(names)))
