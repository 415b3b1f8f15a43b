"""NUMA-aligned scheduling on Kubernetes, made exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rte.library import NodeState, Pod, read_machine

__version__ = "0.1.0"

__all__ = ["NodeState", "Pod", "__version__", "read_machine"]


def __getattr__(name: str) -> Any:
    """The public names of :mod:`rte.library`, loaded when they are asked for."""
    if name in ("NodeState", "Pod", "read_machine"):
        from rte import library

        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
