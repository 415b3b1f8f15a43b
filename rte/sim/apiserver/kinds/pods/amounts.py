"""What the containers of a pod ask for, together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.sim.apiserver.schema import quantities

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.reader.json import Json
    from rte.sim.apiserver.storage.store import Obj


POD_LEVEL = ("cpu", "memory")


def containers_of(spec: Json) -> Iterator[tuple[str, Obj]]:
    """The containers with their paths, init containers last."""
    for index, container in enumerate(spec.get("containers") or ()):
        yield f"spec.containers[{index}]", container
    for index, container in enumerate(spec.get("initContainers") or ()):
        yield f"spec.initContainers[{index}]", container


def is_pod_level(name: str) -> bool:
    """Whether a resource may stand in the stanza of the pod."""
    return name in POD_LEVEL or name.startswith("hugepages-")


def aggregate(spec: Json, which: str) -> dict[str, str]:
    """Requests or limits of all containers together, as the API server sums them: app containers
    and sidecars add up, an ordinary init container counts with the sidecars started before it.
    """
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for name, value in (container["resources"].get(which) or {}).items():
            total[name] = total.get(name, 0) + quantities.amount(name, value)
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        wanted = {
            name: quantities.amount(name, value)
            for name, value in (container["resources"].get(which) or {}).items()
        }
        if container.get("restartPolicy") == "Always":
            for name, value in wanted.items():
                total[name] = total.get(name, 0) + value
                sidecars[name] = sidecars.get(name, 0) + value
            wanted = {}
        for name in {*wanted, *sidecars}:
            peak[name] = max(peak.get(name, 0), wanted.get(name, 0) + sidecars.get(name, 0))
    for name, value in peak.items():
        total[name] = max(total.get(name, 0), value)
    texts = {
        (name, quantities.amount(name, text)): text
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        for name, text in (container["resources"].get(which) or {}).items()
    }
    # What comes from one container alone keeps the form that it was written in.
    return {name: texts.get((name, value)) or _text(name, value) for name, value in total.items()}


def _text(name: str, value: int) -> str:
    if name == "cpu":
        return quantities.canonical(f"{value}m")
    return quantities.canonical(f"{value // 1024}Ki" if value % 1024 == 0 else str(value))
