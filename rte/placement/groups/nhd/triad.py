"""NHD's configuration file ("triad"): read as a request, written back with the ids that were given.

One module instance is one group. Source: NHD ``TriadCfgParser.py``; where NHD crashes on a fault,
this names it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from rte import errors
from rte.placement.groups.document import DocumentValue, PathError, RequestError, follow
from rte.placement.groups.nhd import libconfig
from rte.placement.groups.parsing import parse_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.placement.groups.nhd.libconfig import Value
    from rte.placement.groups.request import GroupsRequest

ARCHITECTURES = ("ANY", "HASWELL", "BROADWELL", "SKYLAKE", "COOPER_LAKE", "ICE_LAKE")
MAP_TYPES = {"NUMA": "numa", "PCI": "pcie"}

_NOT_IN_NAMES = re.compile(r"[^a-z0-9]", re.ASCII)
_GROUP_NAME = re.compile(r"[a-z0-9][-a-z0-9]{0,62}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Triad:
    """A file as a request.

    Attributes:
        document: the request annotation, as JSON values.
        fields: path in the file -> what is written there (``groups[0].queues[0].rx``).
        settings: the file itself.
    """

    document: Mapping[str, object]
    fields: Mapping[str, str]
    settings: Mapping[str, Value]

    @cached_property
    def request(self) -> GroupsRequest:
        """What the file asks for.

        Raises:
            RequestError: no request can.
        """
        return parse_request(json.dumps(self.document))


def read(text: str) -> Triad:
    """Read a file.

    Raises:
        RequestError: the first fault found; ``path`` is a place in the file.
    """
    try:
        settings = libconfig.parse(text)
    except errors.ParseError as error:
        raise RequestError("syntax", "", str(error)) from error
    reader = _FileReader(settings)
    document = reader.document()
    return Triad(document=document, fields=reader.fields, settings=settings)


class _FileValue(DocumentValue):
    """A value of the file."""

    def child(self, name: str, code: str = "missing") -> _FileValue:
        """A setting of a group; ``code`` is the fault where it is not there."""
        group = self.group()
        place = self.at(name)
        place.require(name in group, code, "is missing")
        return place

    def optional(self, name: str) -> _FileValue | None:
        return self.child(name) if name in self.group() else None

    def group(self) -> dict[str, object]:
        self.require(isinstance(self.value, dict), "type", "must be a group { }")
        return dict(self.value)

    def gbps(self) -> int | float:
        """A rate as a JSON number."""
        whole, rest = divmod(self.mbps(), 1000)
        return whole + rest / 1000 if rest else whole

    def smt(self) -> str:
        return "share" if self.truth() else "isolate"


@dataclass(slots=True)
class _FileReader:
    settings: dict[str, Value]
    fields: dict[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, object]:
        root = _FileValue("", self.settings)
        pages = root.child("Hugepages_GB")
        pages.require(pages.whole() >= 0, "value", "must be 0 or more")
        topology = root.child("TopologyCfg")
        arch = topology.child("cpu_arch").one_of(ARCHITECTURES)
        map_type = topology.child("map_type").one_of(tuple(MAP_TYPES))
        self.write_here(self._follow(topology.child("kni_vlan")), "values.vlan")
        misc = self._misc(topology)
        groups = self._groups(topology)
        return {
            "version": 1,
            "mapping": MAP_TYPES[map_type],
            "cpuArch": [arch.lower().replace("_", "")],
            "hugepages": {"1Gi": pages.value} if pages.value else {},
            "misc": misc,
            "groups": groups,
        }

    def _misc(self, topology: _FileValue) -> dict[str, object]:
        cores = topology.child("ext_cores").members()
        for i, name in enumerate(cores):
            self.write_here(self._follow(name), f"misc[{i}]", name)
        smt = topology.child("ext_cores_smt").smt()
        return {"count": len(cores), "smt": smt} if cores else {}

    def _follow(self, name: _FileValue) -> _FileValue:
        """The place that a path from the root names."""
        path = name.text()
        try:
            return _FileValue(path, follow(self.settings, path))
        except PathError as error:
            name.fail("reference", str(error))

    def write_here(self, place: _FileValue, what: str, named_at: _FileValue | None = None) -> None:
        """Something is written into a field, which must hold a number till then."""
        place.whole()
        is_new = self.fields.setdefault(place.path, what) == what
        (named_at or place).require(is_new, "duplicate", f"{place.path} is named twice")

    def _groups(self, topology: _FileValue) -> list[dict[str, object]]:
        groups: list[dict[str, object]] = []
        prefixes: set[str] = set()
        for definition in topology.child("mod_defs").members():
            module = definition.child("module")
            name = module.text()
            module.require(name in self.settings, "reference", f"there is no list {name}")
            prefix = _NOT_IN_NAMES.sub("-", name.lower())
            module.require(
                _GROUP_NAME.fullmatch(f"{prefix}-0"), "value", "cannot be made the name of a group"
            )
            module.require(prefix not in prefixes, "duplicate", f"module {name} is there twice")
            prefixes.add(prefix)
            for i, instance in enumerate(_FileValue(name, self.settings[name]).members()):
                group = _Instance(self, definition, instance, f"groups[{len(groups)}]")
                groups.append({"name": f"{prefix}-{i}", **group.document()})
        return groups


@dataclass(slots=True)
class _Instance:
    """One instance of a module: one group."""

    reader: _FileReader
    definition: _FileValue
    place: _FileValue
    target: str
    queues: list[dict[str, object]] = field(default_factory=list)

    def document(self) -> dict[str, object]:
        group: dict[str, object] = {}
        if (data_path := self.definition.optional("dp_group")) is not None:
            group |= self._data_path(data_path)
        if (nic_cores := self.definition.optional("nic_cores")) is not None:
            group["smt"] = self._nic_cores(nic_cores)
        if self.queues:
            group["queues"] = self.queues
        if (helpers := self.definition.optional("helper_cores")) is not None:
            group["helpers"] = self._helpers(helpers)
        if (vlan := self.definition.optional("data_vlan")) is not None:
            self._write(self.place.child(vlan.text(), "reference"), "values.vlan", vlan)
        return group

    def _write(self, place: _FileValue, what: str, named_at: _FileValue | None = None) -> None:
        self.reader.write_here(place, what, named_at)

    def _data_path(self, definition: _FileValue) -> dict[str, object]:
        smt = definition.child("proc_cores_smt").smt()
        paths = self.place.child(definition.child("name").text(), "reference")
        paths.require(len(paths.members()) == 1, "value", "must have exactly one data path group")
        (path,) = paths.members()
        rates = [path.child("rx_speeds"), path.child("tx_speeds")]
        self._add_queues(path, [path.child("rx_cores"), path.child("tx_cores")], rates)
        group: dict[str, object] = {"smt": smt}
        if (workers := path.optional("cpu_workers")) is not None:
            group["workers"] = len(workers.members())
            for i, worker in enumerate(workers.members()):
                self._write(worker, f"{self.target}.workers[{i}]")
        if (gpu_map := path.optional("gpu_map")) is not None:
            group["gpus"] = self._gpus(gpu_map, definition.optional("gpu_type"))
        return group

    def _add_queues(self, at: _FileValue, cores: list[_FileValue], rates: list[_FileValue]) -> None:
        """Queues from four arrays of one length: cores and rates, each for rx and tx."""
        at.require(
            len({len(array.members()) for array in (*cores, *rates)}) <= 1,
            "length",
            "as many rx as tx cores, and as many speeds",
        )
        rows = zip(*(array.members() for array in (*cores, *rates)), strict=True)
        for rx, tx, rx_rate, tx_rate in rows:
            target = f"{self.target}.queues[{len(self.queues)}]"
            self._write(rx, f"{target}.rx")
            self._write(tx, f"{target}.tx")
            self.queues.append({"rx": rx_rate.gbps(), "tx": tx_rate.gbps()})

    def _gpus(self, gpu_map: _FileValue, gpu_type: _FileValue | None) -> list[dict[str, object]]:
        """GPUs from pairs of core and GPU: pairs of one GPU number are feeders of one GPU."""
        feeders: dict[int, int] = {}
        for pair in gpu_map.members():
            members = pair.members()
            pair.require(len(members) == 2, "value", "must be a core and a GPU")
            core, gpu = members
            feeders.setdefault(gpu.whole(), 0)
            number = list(feeders).index(gpu.value)
            self._write(core, f"{self.target}.feeders[{number}][{feeders[gpu.value]}]")
            self._write(gpu, f"{self.target}.gpus[{number}]")
            feeders[gpu.value] += 1
        model = "ANY" if gpu_type is None else gpu_type.text()
        match = {} if model == "ANY" else {"match": {"model": model}}
        return [{"feeders": count, **match} for count in feeders.values()]

    def _nic_cores(self, definition: _FileValue) -> str:
        """Queues beside the data path; the SMT rule that then is the group's."""
        members = definition.members()
        definition.require(
            len(members) == 5, "length", "must be rx cores, rx speeds, tx cores, tx speeds and SMT"
        )
        rx, rx_rates, tx, tx_rates = (
            self.place.child(name.text(), "reference") for name in members[:4]
        )
        self._add_queues(self.place, [rx, tx], [rx_rates, tx_rates])
        return members[4].smt()

    def _helpers(self, names: _FileValue) -> dict[str, object]:
        count = 0
        for name in names.members():
            place = self.place.child(name.text(), "reference")
            array = isinstance(place.value, list | tuple)
            for core in place.members() if array else [place]:
                self._write(core, f"{self.target}.helpers[{count}]", name)
                count += 1
        if not count:
            return {"count": 0}
        return {"count": count, "smt": self.definition.child("helper_cores_smt").smt()}
