"""Recorded Filter and Score calls of NodeResourceTopologyMatch."""

from __future__ import annotations

import itertools

from rte import nrt as nrt_room
from rte.k8s import podspec
from rte.model.pod import QOS, ContainerKind
from rte.placement.foreign import zone_scores, zones

FIELDS = {"alloc", "cache", "cfg", "i", "nrt", "pod", "want", "strategy", "weights"}
CACHE_FIELDS = {"mode", "reserved", "foreign", "api_down"}
WANT_FIELDS = {"code", "reasons", "qos", "dirty", "score", "panic"}


def after_cache(case: dict) -> tuple[zones.ZoneTable | None, bool]:
    """What the ancestor's cache shows: the NRT after overlay, and whether it is fresh."""
    cache, nrt = case["cache"], case["nrt"]
    if nrt is not None and nrt["metadata"]["name"] != "node0":
        nrt = None
    reserved = [podspec.parse_pod(pod, defaults=False) for pod in cache.get("reserved", ())]
    table = nrt_room.zone_table(nrt_room.decode(nrt)) if nrt is not None else None
    if cache["mode"] == "overreserve":
        if table is not None and cache.get("foreign"):
            return None, False
        if table is not None:
            latest = {(pod.namespace, pod.name): pod for pod in reserved}
            table = zones.overlay(table, latest.values())
        return table, True
    if cache["mode"] == "discardreserved" and reserved:
        return None, False
    return (None if cache.get("api_down") else table), True


def unknown_fields(case: dict) -> list[str]:
    unknown = (
        set(case) - FIELDS | set(case["cache"]) - CACHE_FIELDS | set(case["want"]) - WANT_FIELDS
    )
    return [f"unknown fields {sorted(unknown)}"] if unknown else []


def check_nrt_filter(case: dict) -> list[str]:
    differences = unknown_fields(case)
    table, fresh = after_cache(case)
    pod = podspec.parse_pod(case["pod"], defaults=False)
    got = zones.filter_zones(table, pod, case["alloc"], fresh=fresh)
    want = case["want"]
    if pod.qos != want["qos"]:
        differences.append(f"QoS {pod.qos}, want {want['qos']}")
    if "panic" in want:
        return differences if isinstance(got, zones.ZoneVerdict) else [*differences, "no verdict"]
    judged = pod.qos is not QOS.BEST_EFFORT or asks_for_devices(pod)
    extended = table is not None and table.policy in ("best-effort", "restricted")
    if want["code"] == "Success" and judged and extended:
        # The ancestor lets every node of these policies pass; ours judges them. Its answer counts
        # only when brute force over all zone sets says the same.
        if bool(got) != brute_force(table, pod, case["alloc"]):
            differences.append(f"{table.policy}: {got}")
        return differences
    if got.code != want["code"]:
        differences.append(f"code {got.code}, want {want['code']}")
    reasons = list(got.reasons)
    if reasons[:1] == ["inconsistent resource accounting"]:
        # The second text quotes Go's formatting of quantities.
        if len(reasons) != len(want.get("reasons", ())) or reasons[0] != want["reasons"][0]:
            differences.append(f"reasons {reasons}")
    elif reasons != want.get("reasons", []):
        differences.append(f"reasons {reasons}, want {want.get('reasons')}")
    return differences


check_nrt_filter_crash = check_nrt_filter


def asks_for_devices(pod) -> bool:
    return any("/" in n and "kubernetes.io/" not in n for c in pod.containers for n in c.requests)


def brute_force(table: zones.ZoneTable, pod, alloc: dict) -> bool:
    """The kubelet's rule, spelt out: every zone set, every resource, no cleverness."""
    names = {"cpu", "memory", "pods", "ephemeral-storage"} | {
        name
        for name in alloc
        if "/" in name or name.startswith(("hugepages-", "attachable-volumes-"))
    }
    stock = [[zone.id, dict(zone.available), dict(zone.total)] for zone in table.zones]
    sets = [
        chosen
        for k in range(1, len(stock) + 1)
        for chosen in itertools.combinations(range(len(stock)), k)
    ]
    if table.scope == "pod":
        steps = [(False, zones.effective_requests(pod))]
    else:
        steps = [(c.kind is ContainerKind.APP, c.requests) for c in pod.containers]
    for keep, requests in steps:
        wanted = {}
        for name, amount in requests.items():
            if not amount:
                continue
            listed = any(name in available for _, available, _ in stock)
            native = "/" not in name or "kubernetes.io/" in name
            if name not in names or (not listed and native and "storage" not in name):
                return False
            aligned = name == "cpu" or name == "memory" or name.startswith("hugepages-")
            if listed and (pod.qos is QOS.GUARANTEED or not aligned):
                wanted[name] = amount
        if not wanted:
            continue

        def holds(chosen, column, name, amount):
            return sum(stock[p][column].get(name, 0) for p in chosen) >= amount

        offers = sets if table.policy == "restricted" else [tuple(range(len(stock)))]
        if table.policy == "restricted":
            for name, amount in wanted.items():
                width = min((len(s) for s in sets if holds(s, 2, name, amount)), default=0)
                offers = [s for s in offers if len(s) == width and holds(s, 1, name, amount)]
        offers = [s for s in offers if all(holds(s, 1, n, a) for n, a in wanted.items())]
        if not offers:
            return False
        if keep:
            chosen = min(offers, key=lambda s: sum(1 << i for i in {stock[p][0] for p in s}))
            left = dict(wanted)
            for position in sorted(chosen, key=lambda p: stock[p][0]):
                for name, amount in left.items():
                    take = min(amount, stock[position][1].get(name, 0))
                    if take:
                        stock[position][1][name] -= take
                        left[name] -= take
    return True


def check_nrt_score(case: dict) -> list[str]:
    differences = unknown_fields(case)
    table, fresh = after_cache(case)
    pod = podspec.parse_pod(case["pod"], defaults=False)
    got = zone_scores.score_zones(table, pod, case["strategy"], case["weights"], fresh=fresh)
    want = case["want"]
    if pod.qos != want["qos"]:
        differences.append(f"QoS {pod.qos}, want {want['qos']}")
    if "panic" in want or not 0 <= want["score"] <= 100:
        return differences if 0 <= got <= 100 else [*differences, f"score {got}"]
    if got != want["score"]:
        if mixed_up(case, table, pod) and got == reference_least_zones(
            table, pod, positional=False
        ):
            return differences
        differences.append(f"score {got}, want {want['score']}")
    return differences


check_nrt_score_crash = check_nrt_score
check_nrt_score_outofrange = check_nrt_score


def mixed_up(case: dict, table: zones.ZoneTable | None, pod) -> bool:
    """The ancestor's LeastNUMANodes takes zone ids for list positions when it subtracts.

    A case is one of these when a plain reading **with** the mix-up gives the recorded score.
    """
    return (
        case["strategy"] == "LeastNUMANodes"
        and table is not None
        and table.scope == "container"
        and [zone.id for zone in table.zones] != list(range(len(table.zones)))
        and reference_least_zones(table, pod, positional=True) == case["want"]["score"]
    )


def reference_least_zones(table: zones.ZoneTable, pod, *, positional: bool) -> int | None:
    """LeastNUMANodes in container scope, spelt out; with or without that mix-up."""
    stock = [dict(zone.available) for zone in table.zones]
    ids = [zone.id for zone in table.zones]
    most, all_optimal = 0, True
    for container in pod.containers:
        wanted = container.requests
        if not any(name in zone for name in wanted for zone in stock):
            continue
        found = None
        for k in range(1, len(stock) + 1):
            sets = list(itertools.combinations(range(len(stock)), k))
            far = [sum(table.zones[a].costs.get(ids[b], 255) for a in s for b in s) for s in sets]
            nearest, best = min([255 * k * k, *far]), 256 * k * k
            for chosen, distance in zip(sets, far, strict=True):
                fits = all(
                    all(name in stock[p] for p in chosen)
                    and sum(stock[p][name] for p in chosen) >= amount
                    for name, amount in wanted.items()
                )
                if fits and distance == nearest:
                    found = (chosen, True)
                    break
                if fits and distance < best:
                    found, best = (chosen, False), distance
            if found:
                break
        if not found:
            return 0
        chosen, optimal = found
        zone_ids = sorted({ids[p] for p in chosen})
        most, all_optimal = max(most, len(zone_ids)), all_optimal and optimal
        if positional and max(zone_ids) >= len(stock):
            return None
        places = zone_ids if positional else sorted(chosen, key=lambda p: ids[p])
        left = dict(wanted)
        for place in places:
            for name, amount in left.items():
                take = min(amount, stock[place].get(name, 0))
                if name in stock[place]:
                    stock[place][name] -= take
                left[name] -= take
    if not most:
        return 100
    unit = 100 // table.max_zones
    return 100 - most * unit + (unit // 2 if all_optimal else 0)
