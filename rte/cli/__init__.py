"""The command line: one module per command, loaded only when that command runs."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from rte import __version__, errors

if TYPE_CHECKING:
    from collections.abc import Sequence

#: command -> help; its module defines ``configure(parser)`` and ``run(args) -> int``.
COMMANDS = {
    "demo": "show a whole cluster in this process; needs nothing installed",
    "run": "read this node and publish its NodeResourceTopology (the DaemonSet agent)",
    "scheduler": "place pods so that no kubelet rejects them (scheduler and extender)",
    "topology": "show the machine as the agent sees it (text, JSON or SVG)",
    "explain": "tell per node and zone whether a pod fits, and why not in the kubelet's words",
    "fit": "count how many of a pod fit now, or whether a gang does, and what is missing",
    "defrag": "find the smallest set of moves that opens a place for a pod, and make them",
    "simulate": "place pods onto nodes offline, from files or fixtures",
    "import": "turn what another scheduler has (NHD) into requests, inventories, StatefulSets",
    "render": "write the ids of an allocation into the application's own file",
    "nri": "pin the containers of pods with processing groups (plugin of the runtime)",
    "snapshot": "capture this node's sysfs, procfs and kubelet files as a fixture",
}

#: Modules that cannot be called what their command is.
_MODULES = {"import": "imports"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 = done, 1 = failed (one line on stderr), 2 = usage error."""
    args_list = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(prog="rte", description="NUMA-aligned scheduling, made exact.")
    parser.add_argument("--version", action="version", version=f"rte {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    wanted = next((word for word in args_list if not word.startswith("-")), None)
    for name, text in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        if name == wanted:
            _module(name).configure(sub)
    args = parser.parse_args(args_list)
    try:
        return int(_module(args.command).run(args))
    except errors.UsageError as error:
        print(f"rte {args.command}: {error}", file=sys.stderr)
        return 2
    except errors.RteError as error:
        print(f"rte {args.command}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


def _module(command: str) -> Any:
    return importlib.import_module(f"rte.cli.{_MODULES.get(command, command)}")
