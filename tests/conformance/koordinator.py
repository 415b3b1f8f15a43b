"""Recorded runs of Koordinator's CPU picker and NUMA policies."""

from __future__ import annotations

from rte.model import bits
from rte.model.node import CPUInfo, Topology, ZoneInfo
from rte.placement.koordinator import cpus as koordinator
from rte.placement.koordinator import policy as koordinator_policy

TAKE_FIELDS = {
    "cpus", "alloc", "maxref", "avail", "pref", "need", "bind", "excl", "strat", "res", "err",
    "panic", "usepref",
}  # fmt: skip


def topology(rows: list[list[int]]) -> Topology:
    """Rows are ``[cpu, core as reported, zone, socket]``; the effective core id is theirs."""
    return Topology(
        cpus=tuple(
            CPUInfo(cpu, socket << 16 | core, socket, zone, socket)
            for cpu, core, zone, socket in rows
        ),
        zones=tuple(ZoneInfo(id=zone, memory_bytes=0) for zone in sorted({row[2] for row in rows})),
        sockets=len({row[3] for row in rows}),
    )


def check_koordinator_takecpus(case: dict) -> list[str]:
    if unknown := set(case) - TAKE_FIELDS:
        return [f"unknown fields {sorted(unknown)}"]
    crashed = bool(case["panic"])
    ledger = koordinator.CPULedger(
        topology=topology(case["cpus"]),
        allocated={
            int(cpu): koordinator.HeldCPU(count, policy)
            for cpu, (count, policy) in case["alloc"].items()
        },
        max_references=case["maxref"],
    )
    available = bits.of(case["avail"] or ())
    if ledger.available() != available:
        return [f"available {bits.format_list(ledger.available())}"]
    # DistributeEvenly is an alias of LeastAllocated in the ancestor's code (its documents promise
    # more); the recorded answers are those of the alias, ours has a test of its own.
    strategy = "LeastAllocated" if case["strat"] == "DistributeEvenly" else case["strat"]
    try:
        got = koordinator.pick_cpus(
            ledger,
            case["need"],
            preferred=bits.of(case["pref"] or ()) if case["usepref"] else 0,
            bind=case["bind"],
            exclusive=case["excl"],
            strategy=strategy,
        )
        error = ""
    except koordinator.PickError as failure:
        got, error = 0, str(failure)
    if crashed:
        # Where the ancestor crashes, a clear answer is right: a text, or just the CPUs asked for.
        exact = got.bit_count() == max(case["need"], 0) and not got & ~available
        return [] if error or exact else [f"got {bits.format_list(got)}"]
    if error != case["err"]:
        return [f"error {error!r}, want {case['err']!r}"]
    want = case["res"] or []
    if len(want) > case["need"] > 0:
        # Over-allocation on three and more sockets is a defect of the ancestor: the right answer
        # has exactly the CPUs asked for, all of them available, and the preferred ones first.
        first = min(case["need"], (available & bits.of(case["pref"] or ())).bit_count())
        used = (got & bits.of(case["pref"] or ())).bit_count() if case["usepref"] else first
        if got.bit_count() == case["need"] and not got & ~available and used >= first:
            return []
        return [f"needs {case['need']} CPUs, got {bits.format_list(got)}"]
    if list(bits.members(got)) != want:
        return [f"got {bits.format_list(got)}, want {bits.format_list(bits.of(want))}"]
    return []


POLICY_FIELDS = {
    "nodes",
    "h",
    "kind",
    "policy",
    "excl",
    "status",
    "res",
    "admit",
    "reasons",
    "panic",
}
POLICY_NAMES = {
    "best-effort": koordinator_policy.BEST_EFFORT,
    "restricted": koordinator_policy.RESTRICTED,
    "single-numa-node": koordinator_policy.SINGLE_NUMA_NODE,
}


def hint(row: dict) -> koordinator_policy.TopologyHint:
    zones = None if row["nil"] else bits.of(row["m"] or ())
    return koordinator_policy.TopologyHint(zones, row["p"], row["u"], row["s"])


def check_koordinator_numa_policy(case: dict) -> list[str]:
    if unknown := set(case) - POLICY_FIELDS:
        return [f"unknown fields {sorted(unknown)}"]
    providers: list[dict | None] = []
    for name, kind, rows in zip("abcdefgh", case["kind"], case["h"] or (), strict=False):
        if kind == 0:
            providers.append(None)
        elif kind == 1:
            providers.append({name: None})
        elif kind == 2:
            providers.append({name: []})
        else:
            providers.append({name: [hint(row) for row in rows]})
    got = koordinator_policy.merge(
        POLICY_NAMES[case["policy"]],
        bits.of(case["nodes"]),
        providers,
        exclusive=case["excl"],
        status=dict(zip(case["nodes"], case["status"], strict=True)),
    )
    if case.get("panic"):
        # Where the ancestor crashes, a clear answer is right.
        return [] if got.admitted or got.reasons else ["refused without a reason"]
    differences = []
    if got.hint != hint(case["res"]):
        differences.append(f"hint {got.hint}, want {hint(case['res'])}")
    if got.admitted != case["admit"]:
        differences.append(f"admitted {got.admitted}")
    if list(got.reasons) != (case["reasons"] or []):
        differences.append(f"reasons {got.reasons}, want {case['reasons']}")
    return differences
