"""Settings from flags, environment and a YAML file, merged into one frozen Config.

Precedence: defaults < file < environment < flags; a source counts only for what it really sets.
Each program declares its settings as annotated fields (:mod:`rte.options`); flag ``--log-level``,
variable ``RTE_LOG_LEVEL`` and file key ``log-level`` are derived from them. One file and one
environment may serve several commands: each takes what is its own.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, get_args, get_origin, get_type_hints

from rte import errors
from rte.agent.settings import AgentSettings
from rte.options import Flag, Syntax
from rte.scheduler.settings import SchedulerSettings
from rte.telemetry.logs import LogSettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_T = TypeVar("_T")

#: Names the file; itself not a key of it.
FILE_OPTION = "config"
#: Variables of others that begin like ours: DPDK's, those of this repository's tests, and what
#: Kubernetes tells a pod of a Service whose name begins with ``rte-``.
_FOREIGN = re.compile(
    r"RTE_(SDK|TARGET|CACHE|SEEDS?|ROUNDS|DEPTH|PICTURES"
    r"|(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?))"
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of all components."""

    agent: AgentSettings = field(default_factory=AgentSettings)
    scheduler: SchedulerSettings = field(default_factory=SchedulerSettings)
    log: LogSettings = field(default_factory=LogSettings)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One setting, as it can be given from outside.

    Attributes:
        name: of the flag, without dashes, and of the key in the file unless its Flag differs.
        component: whose it is, an attribute of Config.
        attribute: the field of that component.
        flag: what it means.
        syntax: how it is written; of one value where several can be given.
        several: may be given more than once; separated by commas in one text.
        commands: the commands that have it.
        default: shown in the documentation.
    """

    name: str
    component: str
    attribute: str
    flag: Flag
    syntax: Syntax
    several: bool
    commands: tuple[str, ...]
    default: str

    @property
    def value(self) -> str:
        """What the value is called in ``--help``; a flag without value is empty."""
        return self.flag.value or self.syntax.value

    @property
    def help(self) -> str:
        """What ``--help`` says of it."""
        return f"{self.flag.help} (default: {self.default})" if self.default else self.flag.help

    @property
    def file_key(self) -> str:
        """The key in the file."""
        return self.flag.key or self.name

    @property
    def variable(self) -> str:
        """The environment variable."""
        return "RTE_" + self.file_key.upper().replace("-", "_")


def _settings(component: str, owner: type, commands: tuple[str, ...]) -> Iterator[Setting]:
    """What the annotated fields of a component say."""
    hints = get_type_hints(owner, include_extras=True)
    for own in fields(owner):
        kind, *said = get_args(hints[own.name])
        several = get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis
        flag = _among(said, Flag)
        syntax = _among(get_args(get_args(kind)[0]) if several else said, Syntax)
        name = own.name.replace("_", "-")
        yield Setting(
            name=f"{component}-{name}" if component == "log" else name,
            component=component,
            attribute=own.name,
            flag=flag,
            syntax=syntax,
            several=several,
            commands=flag.commands or commands,
            default=flag.default or _shown(own.default) or syntax.unset,
        )


def _among(said: Iterable[object], kind: type[_T]) -> _T:
    return next(item for item in said if isinstance(item, kind))


def _shown(default: object) -> str:
    """A default for the documentation; empty where it stands for none."""
    if isinstance(default, bool):
        return "true" if default else "false"
    if isinstance(default, float):
        return f"{default:g}"
    if isinstance(default, tuple):
        return ", ".join(default)
    return str(default or "")


SETTINGS = (
    *_settings("agent", AgentSettings, ("run",)),
    *_settings("scheduler", SchedulerSettings, ("scheduler",)),
    *_settings("log", LogSettings, ("run", "scheduler")),
)


def add_arguments(parser: argparse.ArgumentParser, command: str) -> None:
    """Give a command its flags; :func:`load` reads what argparse makes of them."""
    parser.add_argument(
        f"--{FILE_OPTION}", metavar="F", help="YAML file of settings (keys are the flags' names)"
    )
    for setting in _of(command):
        flags = [f"-{setting.flag.short}"] if setting.flag.short else []
        flags.append(f"--{setting.name}")
        add = partial(
            parser.add_argument, *flags, dest=setting.name, help=setting.help, default=None
        )
        if setting.syntax.negated:
            add(action=argparse.BooleanOptionalAction)
        elif setting.value:
            add(metavar=setting.value, action="append" if setting.several else "store")
        else:
            add(action="store_const", const="true")


def _of(command: str) -> list[Setting]:
    return [setting for setting in SETTINGS if command in setting.commands]


def load(command: str, flags: Mapping[str, object], environ: Mapping[str, str]) -> Config:
    """Merge all sources for a command; ``flags`` is what argparse made of :func:`add_arguments`.

    Raises:
        errors.UsageError: a bad value, an unknown key, or a file that cannot be read; one line that
            names every flag, variable or key that is wrong.
    """
    settings = {setting.name: setting for setting in _of(command)}
    problems: list[str] = []
    values: dict[str, object] = {}
    file = flags.get(FILE_OPTION) or environ.get("RTE_CONFIG")
    if file:
        values |= _from_file(Path(str(file)), settings, problems)
    for setting in settings.values():
        for variable in (*reversed(setting.flag.variables), setting.variable):
            if environ.get(variable):
                _set(values, setting, environ[variable], variable, problems)
        given = flags.get(setting.name)
        if given is not None:
            _set(values, setting, given, f"--{setting.name}", problems)
    if problems:
        raise errors.UsageError("; ".join(problems))
    merged = Config()
    for name, value in values.items():
        owner = settings[name].component
        changed = replace(getattr(merged, owner), **{settings[name].attribute: value})
        merged = replace(merged, **{owner: changed})
    return merged


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """One line for each variable that looks like a setting and is none."""
    known = {"RTE_CONFIG", *(setting.variable for setting in SETTINGS)}
    return [
        f"{name} is no setting of rte{errors.meant(name, known)}"
        for name in sorted(environ.keys() - known)
        if name.startswith("RTE_") and not _FOREIGN.fullmatch(name)
    ]


def reference(command: str) -> str:
    """The command's settings as a Markdown table."""
    rows = ["| flag | variable | meaning | default |", "|---|---|---|---|"]
    for setting in _of(command):
        short = f"`-{setting.flag.short}`, " if setting.flag.short else ""
        negated = "[no-]" if setting.syntax.negated else ""
        flag = f"{short}`--{negated}{setting.name}{' ' if setting.value else ''}{setting.value}`"
        variables = ", ".join(f"`{name}`" for name in (setting.variable, *setting.flag.variables))
        meaning, default = setting.flag.help, setting.default
        rows.append(
            "| " + " | ".join((flag.replace("|", "\\|"), variables, meaning, default)) + " |"
        )
    return "\n".join(rows) + "\n"


def _set(
    values: dict[str, object], setting: Setting, given: object, where: str, problems: list[str]
) -> None:
    """Parse one source's value; a later source takes the place of an earlier one."""
    parts = given if isinstance(given, list) else [given]
    texts = [
        piece.strip()
        for part in parts
        for piece in (str(part).split(",") if setting.several else (str(part),))
    ]
    try:
        parsed = [setting.syntax.parse(piece) for piece in texts if piece or not setting.several]
    except ValueError as error:
        shown = given if isinstance(given, str) else ", ".join(texts)
        problems.append(f"{where}: {error}, got {str(shown)[:60]!r}")
        return
    values[setting.name] = tuple(parsed) if setting.several else parsed[0]


def _from_file(
    file: Path, settings: Mapping[str, Setting], problems: list[str]
) -> dict[str, object]:
    # Here: it costs start-up time, and most runs have no file.
    from rte.reader import jsontext, yamltext

    try:
        document = yamltext.load(file.read_bytes(), "configuration", jsontext.FILE)
    except OSError as error:
        raise errors.UsageError(f"config file {file}: {error.strerror}") from error
    except errors.MalformedError as error:
        raise errors.UsageError(f"config file {file}: {error.why}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise errors.UsageError(f"config file {file}: expected keys and values at the top level")
    known = {setting.file_key for setting in SETTINGS}
    by_key = {setting.file_key: setting for setting in settings.values()}
    values: dict[str, object] = {}
    for key, given in document.items():
        where = f"config file {file}, key {str(key)[:60]!r}"
        setting = by_key.get(str(key))
        if setting is None:
            if key not in known:  # a key of another command is none of this one's business
                problems.append(f"{where}: unknown{errors.meant(str(key), known)}")
        elif isinstance(given, bool | int | float | str):
            spelt = ("true" if given else "false") if isinstance(given, bool) else given
            _set(values, setting, str(spelt), where, problems)
        elif setting.several and isinstance(given, list) and all(isinstance(x, str) for x in given):
            _set(values, setting, given, where, problems)
        else:
            problems.append(
                f"{where}: expected {'a list of texts' if setting.several else 'a value'}"
            )
    return values
