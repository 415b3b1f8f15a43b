"""Sources that contradict each other, one line each; nothing here changes the reading."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.accounting.machine import is_strict
from rte.model import bits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rte.accounting.listed import Listing, Name
    from rte.model.bits import CPUSet
    from rte.model.kubelet import KubeletView
    from rte.model.node import NodeState


def disagreements(
    state: NodeState, view: KubeletView, listing: Listing | None, uids: Mapping[Name, str]
) -> list[str]:
    """What podresources says differently from the files, when both are of the same moment."""
    if not view.coherent or view.cpu is None or state.config.cpu_policy != "static":
        return []
    lines = list(_reserved(state))
    if view.allocatable and view.allocatable.cpus:
        lines += _differ(
            "podresources' allocatable CPUs",
            view.allocatable.cpus,
            "its configuration",
            state.topology.all_cpus & ~state.reserved,
        )
    if listing is None:
        return lines
    if listing.shared:
        lines += _differ(
            "the shared pool of the reference container",
            listing.shared,
            "cpu_manager_state",
            view.cpu.default,
        )
    for pod in listing.pods:
        uid, name = uids[pod.namespace, pod.name], f"{pod.namespace}/{pod.name}"
        whole = view.cpu.pod_entries.get(uid, 0)
        if pod.cpus:  # kubelets before 1.37 do not list it
            lines += _differ(f"podresources' CPUs of {name}", pod.cpus, "cpu_manager_state", whole)
        entries = view.cpu.entries.get(uid, {})
        for container in pod.containers:
            known = entries.get(container.name, 0)
            if whole and not container.cpus:
                continue  # it shares those of its pod
            if container.cpus != known:
                lines += _differ(
                    f"podresources' CPUs of {name}/{container.name}",
                    container.cpus,
                    "cpu_manager_state",
                    known,
                )
    return lines


def _reserved(state: NodeState) -> Iterator[str]:
    """As validateState in policy_static.go; the running kubelet may have an older configuration."""
    reserved = state.reserved
    if is_strict(state.config):
        wrong = reserved & state.shared
        if wrong:
            yield f"reserved CPUs {bits.format_list(wrong)} are in the shared pool all the same"
    elif reserved & ~state.shared:
        wrong = reserved & ~state.shared
        yield f"reserved CPUs {bits.format_list(wrong)} are not in the shared pool"


def _differ(what: str, told: CPUSet, other: str, known: CPUSet) -> Iterator[str]:
    if told != known:
        yield (
            f"{what}: {bits.format_list(told) or 'none'}; by {other}: "
            f"{bits.format_list(known) or 'none'}"
        )
