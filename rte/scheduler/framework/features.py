"""The table of features, made from what the plugins declare."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rte.scheduler.framework.plugin import Plugin


def table(plugins: Iterable[Plugin]) -> str:
    """Markdown: plugin, the fields of the PodSpec that it owns, what is done with them."""
    lines = ["| plugin | owns of the PodSpec | what is honoured |", "|---|---|---|"]
    for plugin in sorted(plugins, key=lambda each: each.name):
        fields = ", ".join(f"`{name}`" for name in sorted(plugin.owns)) or "-"
        lines.append(f"| {plugin.name} | {fields} | {plugin.says or '-'} |")
    return "\n".join(lines)
