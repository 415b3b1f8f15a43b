"""``rte completion``: what a shell needs to complete commands, flags and their values."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from rte import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rte.cli.parsing import Parser

SHELLS = ("bash", "zsh", "fish")
#: A value like ``text|json``: the words that may be typed.
_WORDS = re.compile(r"[a-z][a-z-]*(\|[a-z][a-z-]*)+")
#: How ``--help`` calls a value that is a file or a folder (``F``), or a folder.
_FILES = re.compile(r"F|FILE|PATH|MACHINE|OUT\b.*")
_FOLDERS = re.compile(r"DIR")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the script")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    parser = _everything()
    for action in _actions(parser):
        name = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
        if action.choices is None and _WORDS.fullmatch(name):
            action.choices = name.split("|")
        elif action.nargs != 0 and _FOLDERS.fullmatch(name):
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.nargs != 0 and _FILES.fullmatch(name):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, args.shell))
    return 0


def _everything() -> Parser:
    """The parser with the flags of all commands; of those that are installed."""
    parser, commands = cli.build_parser()
    for name, sub in commands.items():
        try:
            cli.configure(name, sub)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "rte":
                raise
    return parser


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:  # noqa: SLF001  # argparse has no public way to list them
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for sub in action.choices.values():
                yield from _actions(sub)
