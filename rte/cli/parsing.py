"""Parsing of command lines: what is wrong is told in one line, with the name that was meant."""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from rte import errors
from rte.model import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rte.reader.json import JsonObject

#: What names a machine, in every command that takes one.
MACHINE = f"{words.MACHINE}, or a node of the cluster"

_MISSING = "the following arguments are required"


@dataclass(frozen=True)
class Command:
    """What ``--help`` says of a command.

    Attributes:
        help: one line.
        example: how it is typed.
        fails: when it exits with 1 although nothing went wrong; empty where it never does.
        extra: of the package, with all libraries that the command may need.
    """

    help: str
    example: str
    fails: str = ""
    extra: str = "scheduler"

    @property
    def described(self) -> JsonObject:
        """For its parser: what it does, an example, the exit codes."""
        failed = f"{self.fails}, or it failed" if self.fails else "it failed"
        return {
            "description": f"{self.help[0].upper()}{self.help[1:]}.",
            "epilog": f"example: {self.example}\n"
            f"exit code: 0 done; 1 {failed} (one line on stderr says why); 2 wrong usage",
        }


class Parser(argparse.ArgumentParser):
    """An argument parser without abbreviations, whose errors are exceptions."""

    def __init__(self, **keywords: Any) -> None:
        keywords.setdefault("formatter_class", _Formatter)
        super().__init__(allow_abbrev=False, **keywords)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the whole usage."""
        for kind, name in (("int", "a whole number"), ("float", "a number")):
            message = message.replace(f": invalid {kind} value: ", f": expected {name}, got ")
        raise errors.UsageError(f"{message} (see {self.prog} --help)")

    def parse_words(
        self, words: Sequence[str], known: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse all words, into ``known`` if that is given.

        Raises:
            errors.UsageError: one of them is wrong; unknown flags come with the nearest one.
        """
        try:
            args, unknown = self.parse_known_args(words, known)
        except errors.UsageError as error:
            if _MISSING in str(error):  # it may be there, misspelt
                self._refuse(self._unknown_flags(words))
            raise
        self._refuse(unknown)
        return args

    def _refuse(self, unknown: Sequence[str]) -> None:
        if unknown:
            self.error("; ".join(f"unknown argument {word}{self._meant(word)}" for word in unknown))

    def _unknown_flags(self, words: Sequence[str]) -> list[str]:
        """Of the words before a ``--``, those that look like a long flag and are none."""
        before = itertools.takewhile(lambda word: word != "--", words)
        return [
            word
            for word in before
            if word.startswith("--") and word.partition("=")[0] not in self._option_string_actions
        ]

    def _meant(self, word: str) -> str:
        return errors.meant(word.partition("=")[0], self._option_string_actions)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Shows the default of every option that has one and does not tell it itself."""

    def add_argument(self, action: argparse.Action) -> None:
        """As argparse does; names of commands are indented once more, which it forgets."""
        super().add_argument(action)
        for each in self._iter_indented_subactions(action):
            width = len(self._format_action_invocation(each)) + self._current_indent
            self._action_max_length = max(
                self._action_max_length, width + 2 * self._indent_increment
            )

    def _get_help_string(self, action: argparse.Action) -> str | None:
        told = action.help or ""
        has_none = action.default in (None, False, argparse.SUPPRESS, "") or action.default == []
        if has_none or "default" in told:
            return told
        return f"{told} (default: %(default)s)".lstrip()
