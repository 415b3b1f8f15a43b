"""Parts that register themselves by entry points; a core without them runs.

NHD's formats and Koordinator's plugins are such parts: they are in the same package, and only its
metadata (``pyproject.toml``) names them. Packages of others may bring more.
"""

from __future__ import annotations

from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

from rte import errors

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Rules of the scheduler that are off unless asked for.
PLUGINS = "rte.plugins"
#: Other schedulers' ways to say what groups pods ask for and hold.
DIALECTS = "rte.dialects"
#: Modules of commands, each with ``COMMAND``, ``configure`` and ``run``.
COMMANDS = "rte.commands"
#: What ``rte scheduler`` serves beside its own.
SERVICES = "rte.services"


@cache
def registered(group: str) -> Mapping[str, metadata.EntryPoint]:
    """What there is of a kind, by name."""
    return {found.name: found for found in sorted(metadata.entry_points(group=group))}


def load(group: str, name: str) -> Any:
    """One of them.

    Raises:
        errors.UsageError: it is not installed.
    """
    if name not in registered(group):
        raise errors.UsageError(f"{name} is not installed: no entry point of {group} names it")
    return registered(group)[name].load()
