"""DRA devices (pure): structured allocation as Kubernetes does it, CEL, zones of devices.

The public names are here; docs/dra.md shows them at work.
"""

from rte.placement.dra.alignment import Aligned, Alignment, AlignmentWish, align
from rte.placement.dra.cel.expressions import CEL
from rte.placement.dra.features import Features
from rte.placement.dra.inventory import DeviceInventory
from rte.placement.dra.nodes import ClaimNode
from rte.placement.dra.structured.allocator import DeviceSupply, allocate
from rte.placement.dra.structured.usage import Usage
from rte.placement.dra.verdict import ClaimVerdict, Reason

__all__ = [
    "CEL",
    "Aligned",
    "Alignment",
    "AlignmentWish",
    "ClaimNode",
    "ClaimVerdict",
    "DeviceInventory",
    "DeviceSupply",
    "Features",
    "Reason",
    "Usage",
    "align",
    "allocate",
]
