"""Recorded CPU picks and hint merges of the real kubelet's packages."""

from __future__ import annotations

from rte.model import bits
from rte.model.node import CPUInfo, Topology
from rte.placement.kubelet import merge, outcome, releases
from rte.placement.kubelet.cpu import distributed, pickers
from tests.conformance.kubelet import VERSION, Differences, as_hint

TAKE_FIELDS = {
    "id", "version", "sockets", "uncore_reported", "cpus", "avail", "n", "algo", "sort",
    "align_uncore", "align_by_socket", "group", "out", "err", "hang", "alias_sensitive",
}  # fmt: skip
MERGE_FIELDS = {
    "id", "version", "src", "policy", "prefer_closest", "numa", "dist", "providers", "hint",
    "admit",
}  # fmt: skip


def check_kubelet_take_by_topology(case: dict) -> list[str]:
    found = Differences()
    found.known("case", case, TAKE_FIELDS)
    machine = pickers.layout_of(
        Topology(
            cpus=tuple(CPUInfo(*row) for row in case["cpus"]),
            zones=(),
            sockets=case["sockets"],
            uncore_reported=case["uncore_reported"],
        )
    )
    available = bits.parse_list(case["avail"])
    spread = case["sort"] == "spread"
    ours: dict[str, object] = {}
    try:
        if case["algo"] == "packed":
            cpus = pickers.take_packed(
                machine, available, case["n"], spread=spread, uncore=case["align_uncore"]
            )
        else:
            release = releases.known(case.get("version", VERSION))
            assert release is not None
            cpus = distributed.take_distributed(
                machine,
                available,
                case["n"],
                case["group"],
                spread=spread,
                in_socket=case.get("align_by_socket", False)
                and releases.DISTRIBUTION_IN_SOCKET.is_in(release),
                lowers_share=releases.SHARE_LOWERED.is_in(release),
            )
        ours["out"] = bits.format_list(cpus)
    except outcome.AllocationRefused as refused:
        wrapped = outcome.AllocationRefused.unexpected(case["err"]) if "err" in case else None
        ours["err"] = (
            case["err"] if wrapped and wrapped.message == refused.message else str(refused)
        )
    except outcome.Breaks:
        ours["hang"] = True
    found.compare(
        "result", ours, {name: case[name] for name in ("out", "err", "hang") if name in case}
    )
    return found


def check_kubelet_merge_hints(case: dict) -> list[str]:
    found = Differences()
    found.known("case", case, MERGE_FIELDS)
    providers = [
        provider
        and {
            name: None if hints is None else [tuple(hint) for hint in hints]
            for name, hints in provider.items()
        }
        for provider in case["providers"]
    ]
    distances = dict(zip(case["numa"], case["dist"], strict=True))
    hint, admitted = merge.merge(
        case["policy"],
        providers,
        bits.of(case["numa"]),
        distances if case["prefer_closest"] else None,
    )
    found.compare("hint", as_hint(hint), case["hint"])
    found.compare("admit", admitted, case["admit"])
    return found
