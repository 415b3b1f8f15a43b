"""One request on one node, ready for the search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from rte.placement.groups.search.cores import Load, need

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rte.placement.groups.request import GPUWish, GroupsRequest, GroupWish, NICWish
    from rte.placement.groups.search.supply import GPUType, GroupSupply, NICFunction

#: The zone of groups without alignment.
ANYWHERE = -1
#: A zone's number and a PCIe domain in it (``""`` where that does not matter).
Place: TypeAlias = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Region:
    """A place that a group may be put in: a zone, a PCIe domain of it, or anywhere.

    Attributes:
        zone: number of the zone, or :data:`ANYWHERE`.
        functions: for each NIC wish the functions that it may have, in address order.
        types: for each GPU wish the GPU types that it may have, a bit mask.
    """

    zone: int
    functions: tuple[tuple[int, ...], ...] = ()
    types: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Item:
    """A group, or the misc CPUs of the pod, to be put into one of its regions.

    Attributes:
        group: its index in the request, None for misc CPUs.
        cores: how many it takes of its zone, where all cores have the same number of threads.
        load: its CPU classes, where they differ; empty for groups without alignment, whose CPUs
            come from what the others leave.
        pages: what it takes of its zone, by number of the page size.
        regions: where it may be, in order of zone and domain.
        nics: its NIC wishes.
        scope: of its PCIe domains.
        twin: position of the last item before it that asks for the same, -1 without one.
    """

    group: int | None
    cores: int
    load: Load
    pages: tuple[int, ...]
    regions: tuple[Region, ...]
    nics: tuple[NICWish, ...] = ()
    scope: str = "switch"
    twin: int = -1


class SearchProblem:
    """One request on one node.

    Attributes:
        items: groups in request order, then the misc CPUs that must be in one zone.
        free_load: CPU classes that may come from several zones.
        sizes: the page sizes that the request names.
        pages: size -> zone -> free pages.
        pod_pages: size -> pages that are bound to no zone: the pod's and those of groups without
            alignment.
    """

    def __init__(self, request: GroupsRequest, supply: GroupSupply) -> None:
        self.request = request
        self.supply = supply
        wanted = [request.hugepages, *(group.hugepages for group in request.groups)]
        self.sizes = tuple(sorted({size for pages in wanted for size in pages}))
        self.pages = [supply.pages(size) for size in self.sizes]
        loose = [group for group in request.groups if group.mapping == "none"]
        self.pod_pages = [
            sum(pages.get(size, 0) for pages in (request.hugepages, *(g.hugepages for g in loose)))
            for size in self.sizes
        ]
        classes = [wish for group in loose for wish in group.classes()]
        if request.misc.mapping == "none" and request.misc.count:
            classes.append(request.misc)
        self.free_load: Load = tuple(sorted(map(need, classes)))
        self.items = self._with_twins([*map(self._item, range(len(request.groups))), *self._misc()])

    def cores_of(self, load: Load) -> int:
        """Cores that CPU classes take, where all have the same number of threads."""
        threads = self.supply.threads
        return sum(-(-cpus // threads) if shares else cpus for cpus, shares in load)

    def _item(self, index: int) -> Item:
        group = self.request.groups[index]
        load: Load = () if group.mapping == "none" else tuple(sorted(map(need, group.classes())))
        pages = () if group.mapping == "none" else self._pages(group)
        return Item(
            group=index,
            cores=self.cores_of(load) if self.supply.threads else 0,
            load=load,
            pages=pages,
            regions=tuple(self._regions(group, load, pages)),
            nics=group.nics,
            scope=group.scope,
        )

    def _pages(self, group: GroupWish) -> tuple[int, ...]:
        return tuple(group.hugepages.get(size, 0) for size in self.sizes)

    def _misc(self) -> Iterator[Item]:
        misc = self.request.misc
        if misc.count and misc.mapping == "numa":
            load = (need(misc),)
            yield Item(
                group=None,
                cores=self.cores_of(load) if self.supply.threads else 0,
                load=load,
                pages=(),
                regions=tuple(Region(zone) for zone in self._zones_for(load, ())),
            )

    def _zones_for(self, load: Load, pages: tuple[int, ...]) -> Iterator[int]:
        """Zones that have the CPUs and the pages."""
        supply = self.supply
        for zone, stock in enumerate(supply.stocks):
            if all(self.pages[i][zone] >= count for i, count in enumerate(pages) if count):
                if supply.threads:
                    fits = self.cores_of(load) <= stock[0]
                else:
                    fits = bool(supply.arithmetic.rests(stock, load))
                if fits:
                    yield zone

    def _regions(self, group: GroupWish, load: Load, pages: tuple[int, ...]) -> Iterator[Region]:
        """The regions that have something for each wish."""
        by_domain = group.mapping == "pcie" and bool(group.gpus or group.nics)
        places: Iterable[Place]
        place = _place_of(group.mapping, group.scope if by_domain else None)
        functions = [self._sorted_functions(wish, place) for wish in group.nics]
        types = [self._sorted_types(wish, place) for wish in group.gpus]
        if group.mapping == "none":
            places = [(ANYWHERE, "")]
        elif by_domain:
            found: Iterable[Place] = functions[0] if functions else types[0]
            fit = frozenset(self._zones_for(load, pages))
            places = sorted((it for it in found if it[0] in fit), key=lambda it: it[0])
        else:
            places = [(zone, "") for zone in self._zones_for(load, pages)]
        for it in places:
            has_functions = all(it in by_place for by_place in functions)
            if has_functions and all(it in by_place for by_place in types):
                yield Region(
                    it[0],
                    tuple(tuple(by_place[it]) for by_place in functions),
                    tuple(by_place[it] for by_place in types),
                )

    def _sorted_functions(
        self, wish: NICWish, place: Callable[[GPUType | NICFunction], Place | None]
    ) -> dict[Place, list[int]]:
        """Functions that may serve the wish, by place."""
        found: dict[Place, list[int]] = {}
        for i in self.supply.serving(wish):
            if (it := place(self.supply.functions[i])) is not None:
                found.setdefault(it, []).append(i)
        return found

    def _sorted_types(
        self, wish: GPUWish, place: Callable[[GPUType | NICFunction], Place | None]
    ) -> dict[Place, int]:
        """GPU types that suit the wish, by place."""
        found: dict[Place, int] = {}
        for i in self.supply.suiting(wish):
            if (it := place(self.supply.types[i])) is not None:
                found[it] = found.get(it, 0) | 1 << i
        return found

    @staticmethod
    def _with_twins(items: list[Item]) -> tuple[Item, ...]:
        last: dict[tuple[object, ...], int] = {}
        joined = []
        for i, item in enumerate(items):
            kind = item.cores, item.load, item.pages, item.regions, item.nics, item.scope
            twin = last.get(kind, -1) if item.group is not None else -1
            joined.append(item if twin < 0 else replace(item, twin=twin))
            last[kind] = i
        return tuple(joined)


def _place_of(mapping: str, scope: str | None) -> Callable[[GPUType | NICFunction], Place | None]:
    """Where a device is, as far as a group is bound to places; None: no aligned group can have it.

    ``scope`` is given where the group is bound to a PCIe domain.
    """

    def place(device: GPUType | NICFunction) -> Place | None:
        if mapping == "none":
            return ANYWHERE, ""
        if device.zone is None:
            return None
        return device.zone, device.domains[scope] if scope else ""

    return place
