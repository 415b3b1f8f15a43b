"""Whether an allocation is valid, checked from the API objects without the search's code.

Used where any valid allocation counts, and where Kubernetes' allocator gives up although one exists
(``vectors/dra/README.md``): there ``complete`` rules hold, by which admin access takes nothing away
from others and an overdrawn counter concerns only devices that consume it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any

import msgspec

from rte.k8s import wire
from rte.model import quantity
from rte.placement.dra import nodes, objects

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rte.placement.dra.structured.pools import Pool

Key = tuple[str, str, str]


def attribute(data: Any) -> objects.Attribute:
    return msgspec.convert(data, objects.Attribute)


def why_not_better(
    case: dict[str, Any],
    node: nodes.ClaimNode,
    pools: Sequence[Pool],
    ours: dict[str, Any],
    wanted: str,
) -> str:
    """Empty if it is right to place where Kubernetes' allocator did not; else what is wrong."""
    old = case["k8s"].startswith("1.35")
    if wanted not in ("no_fit", "node_only") and not (old and wanted == "panic"):
        return "a deliberate refusal"
    reason = invalid(case, node, pools, ours, complete=True)
    if reason:
        return reason
    if not invalid(case, node, pools, ours, complete=False) and not (old and _defect_of_135(case)):
        return "valid by Kubernetes' own rules, so its exhaustive search would have found it"
    return ""


def _defect_of_135(case: dict[str, Any]) -> bool:
    """1.35 keeps counters of refused devices, and cannot serve mode All as a later alternative."""
    counters = any(
        device.get("consumesCounters")
        for value in case.get("slices", ())
        for device in value["spec"].get("devices", ())
    )
    later_all = any(
        one.get("allocationMode") == "All"
        for claim in case["claims"]
        for request in claim["spec"]["devices"].get("requests", ())
        for one in request.get("firstAvailable", ())[1:]
    )
    return counters or later_all


def invalid(
    case: dict[str, Any],
    node: nodes.ClaimNode,
    pools: Sequence[Pool],
    ours: dict[str, Any],
    *,
    complete: bool,
) -> str:
    """The first rule that the allocations break, or nothing."""
    todo = [claim for claim in case["claims"] if not claim.get("status", {}).get("allocation")]
    if sorted(ours) != sorted(claim["metadata"]["name"] for claim in todo):
        return "not every claim is allocated"
    for problem in _problems(
        case, node, pools, [(c, ours[c["metadata"]["name"]]) for c in todo], complete
    ):
        return problem
    return ""


def _problems(
    case: dict[str, Any],
    node: nodes.ClaimNode,
    pools: Sequence[Pool],
    allocated: list[tuple[Any, Any]],
    complete: bool,
) -> Iterator[str]:
    usable = {tuple(d.id): d for pool in pools for d in pool.devices if d not in pool.away}
    published = _published(case)
    for claim, allocation in allocated:
        results = allocation["devices"]["results"] if allocation["devices"] else ()
        if len(results) > 32:
            yield "more than 32 devices"
        for result in results:
            if _key(result) not in usable:
                yield f"{_key(result)} is not a usable device of the node"
                return
        yield from _requests(case, claim, results, published, usable, pools)
        yield from _constraints(case, claim, results, published)
        selector = allocation.get("nodeSelector")
        if selector and not nodes.selects(msgspec.convert(selector, wire.NodeSelector), node):
            yield "the node selector excludes the node"
    yield from _use(case, allocated, published, complete)
    yield from _counters(case, allocated, pools, complete)


def _requests(case, claim, results, published, usable, pools) -> Iterator[str]:
    classes = {c["metadata"]["name"]: c.get("spec", {}) for c in case["classes"]}
    by_request = defaultdict(list)
    for result in results:
        by_request[result["request"]].append(result)
    for request in claim["spec"]["devices"].get("requests", ()):
        choices = {f"{request['name']}/{s['name']}": s for s in request.get("firstAvailable", ())}
        choices = choices or {request["name"]: request["exactly"]}
        chosen = [name for name in choices if name in by_request]
        if len(chosen) != 1:
            yield f"request {request['name']} is served {len(chosen)} times"
            continue
        spec, got = choices[chosen[0]], by_request[chosen[0]]
        selectors = [
            *classes[spec["deviceClassName"]].get("selectors", ()),
            *spec.get("selectors", ()),
        ]
        for result in got:
            device = published[_key(result)]
            if any(_matches(case, device, s) != "1" for s in selectors):
                yield f"{_key(result)} does not match the selectors of {chosen[0]}"
            if not all(
                any(_tolerates(t, taint) for t in spec.get("tolerations", ()))
                for taint in _taints(case, device)
            ):
                yield f"{_key(result)} has a taint that {chosen[0]} does not tolerate"
        if spec.get("allocationMode") == "All":
            every = {
                key
                for key in usable
                if all(_matches(case, published[key], s) == "1" for s in selectors)
                and _capacity_problem(case, published[key], spec, {}) is None
            }
            if {_key(result) for result in got} != every:
                yield f"{chosen[0]} has not all devices"
        elif len(got) != spec.get("count", 1):
            yield f"{chosen[0]} has {len(got)} devices"
        if case["features"].get("ConsumableCapacity"):
            for result in got:
                problem = _capacity_problem(
                    case, published[_key(result)], spec, result.get("consumedCapacity", {})
                )
                if problem:
                    yield f"{_key(result)}: {problem}"


def _constraints(case, claim, results, published) -> Iterator[str]:
    for constraint in claim["spec"]["devices"].get("constraints", ()):
        names = constraint.get("requests")
        concerned = [
            r
            for r in results
            if not names or {r["request"], r["request"].split("/")[0]} & set(names)
        ]
        wanted = constraint.get("matchAttribute") or constraint["distinctAttribute"]
        found = [
            _attribute(case, claim, published[_key(r)], r["request"], wanted) for r in concerned
        ]
        if any(values is None for values in found):
            yield f"a device lacks {wanted}"
            continue
        if "matchAttribute" in constraint:
            if found and not frozenset.intersection(*found):
                yield f"devices differ in {wanted}"
        elif any(one & other for one, other in combinations(found, 2)):
            yield f"devices agree in {wanted}"


def _use(case, allocated, published, complete) -> Iterator[str]:
    whole: Counter[Key] = Counter()
    amounts: dict[Key, Counter[str]] = defaultdict(Counter)
    shares = case["features"].get("ConsumableCapacity", False)
    for result in _held(case):
        if shares and result.get("shareID"):
            for name, amount in result.get("consumedCapacity", {}).items():
                amounts[_key(result)][name] += _number(amount)
        else:
            whole[_key(result)] += 1
    taken_before = set(whole)
    for claim, allocation in allocated:
        watched = set()
        for result in allocation["devices"].get("results", ()):
            key = _key(result)
            admin = result.get("adminAccess", False)
            if shares and result.get("shareID"):
                if not (admin and complete):
                    for name, amount in result.get("consumedCapacity", {}).items():
                        amounts[key][name] += _number(amount)
                continue
            if admin:
                if key in watched:
                    yield f"{key} twice with admin access in {claim['metadata']['name']}"
                watched.add(key)
                if not complete and key not in taken_before:
                    whole[key] += 1
            else:
                whole[key] += 1
    for key, times in whole.items():
        if times > 1 and key not in taken_before:
            yield f"{key} is taken {times} times"
        new = sum(
            _key(r) == key and not r.get("adminAccess") and not (shares and r.get("shareID"))
            for _, a in allocated
            for r in a["devices"].get("results", ())
        )
        if key in taken_before and new:
            yield f"{key} was taken before"
    for key, sums in amounts.items():
        for name, amount in sums.items():
            if key in published and amount > _number(published[key]["capacity"][name]["value"]):
                yield f"{key}: {name} is overdrawn"


def _counters(case, allocated, pools, complete) -> Iterator[str]:
    if not case["features"].get("PartitionableDevices"):
        return
    held = {_key(result) for result in _held(case)}
    new = {
        _key(r)
        for _, a in allocated
        for r in a["devices"].get("results", ())
        if not (complete and r.get("adminAccess"))
    } - held
    for pool in pools:
        left = {(s, n): v for s, amounts in pool.counters.items() for n, v in amounts.items()}
        wanted = set()
        consumes = False
        for device in (*pool.devices, *pool.elsewhere):
            if tuple(device.id) in held | new:
                for consumed in device.device.consumes_counters:
                    consumes = consumes or tuple(device.id) in new
                    for name, counter in consumed.counters.items():
                        left[consumed.counter_set, name] -= counter.value
                        if tuple(device.id) in new and counter.value:
                            wanted.add((consumed.counter_set, name))
        checked = wanted if complete else (set(left) if consumes else set())
        for name in sorted(checked):
            if left[name] < 0:
                yield f"counter {name} of {pool.id} is overdrawn"


def _capacity_problem(case, device, spec, consumed) -> str | None:
    for name, amount in (spec.get("capacity") or {}).get("requests", {}).items():
        has = device.get("capacity", {}).get(name)
        if has is None:
            return f"lacks {name}"
        if _number(amount) > _number(has["value"]):
            return f"{name} is too small"
        if name in consumed and _number(consumed[name]) < _number(amount):
            return f"less {name} consumed than asked for"
    return None


def _published(case: dict[str, Any]) -> dict[Key, Any]:
    """Every device with its place in ``match``; the newest generation wins."""
    found: dict[Key, Any] = {}
    newest: dict[Key, int] = {}
    place = 0
    for value in case.get("slices", ()):
        spec = value["spec"]
        for device in spec.get("devices", ()):
            key = (spec["driver"], spec["pool"]["name"], device["name"])
            generation = spec["pool"].get("generation", 0)
            if generation >= newest.get(key, -1):
                newest[key] = generation
                found[key] = {**device, "place": place, "key": key}
            place += 1
    return found


def _matches(case: dict[str, Any], device: Any, selector: Any) -> str:
    return str(case["match"][selector["cel"]["expression"]][device["place"]])


def _taints(case: dict[str, Any], device: Any) -> Iterator[Any]:
    if not case["features"].get("DeviceTaints"):
        return
    ruled = []
    for rule in case.get("rules", ()):
        selector = rule["spec"].get("deviceSelector")
        names = dict(zip(("driver", "pool", "device"), device["key"], strict=True))
        if selector is not None and all(names[part] == name for part, name in selector.items()):
            ruled.append(rule["spec"]["taint"])
    for taint in (*device.get("taints", ()), *ruled):
        if taint["effect"] in ("NoSchedule", "NoExecute"):
            yield taint


def _tolerates(toleration: Any, taint: Any) -> bool:
    same = all(toleration.get(p, "") in ("", taint.get(p, "")) for p in ("key", "effect"))
    exists = toleration.get("operator") == "Exists"
    return same and (exists or toleration.get("value", "") == taint.get("value", ""))


def _attribute(case, claim, device, request, name) -> frozenset[Any] | None:
    for wanted in claim["spec"]["devices"]["requests"]:
        for spec in (wanted.get("exactly"), *wanted.get("firstAvailable", ())):
            own = spec and "/".join(filter(None, (wanted["name"], spec.get("name"))))
            for derived in (spec or {}).get("derivedAttributes", ()) if own == request else ():
                if derived["name"] == name:
                    return _values(case["derived"][derived["expression"]][device["place"]])
    attributes = device.get("attributes", {})
    domain, _, bare = name.partition("/")
    found = attributes.get(name) or (attributes.get(bare) if domain == device["key"][0] else None)
    return _values(found)


def _values(data: Any) -> frozenset[Any] | None:
    if not isinstance(data, dict) or not data:
        return None
    ((kind, value),) = data.items()
    many = value if isinstance(value, list) else [value]
    return frozenset((kind.rstrip("s"), one) for one in many)


def _held(case: dict[str, Any]) -> Iterator[Any]:
    for claim in (*case["claims"], *case.get("others", ())):
        allocation = claim.get("status", {}).get("allocation") or {}
        for result in allocation.get("devices", {}).get("results", ()):
            if not result.get("adminAccess"):
                yield result


def _key(result: Any) -> Key:
    return result["driver"], result["pool"], result["device"]


def _number(text: str) -> Fraction:
    return Fraction(quantity.parse_nano(text), quantity.NANO)
