"""Pictures of machines as SVG; ``blocks`` is the layout, ``words`` what parts are called."""

from rte.view.drawing.machine import draw

__all__ = ["draw"]
