"""Pages of the documentation that are made from the code (a hook of MkDocs)."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files

from rte import cli
from rte.scheduler.cache.cluster import Cluster
from rte.scheduler.loop.cycle import Cycle
from rte.scheduler.report.metrics import SchedulerMetrics
from rte.scheduler.report.reporter import REASONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig

    from rte.cli.parsing import Parser

ROOT = Path(__file__).parents[1]
#: Annotations and labels of ours.
KEY = re.compile(r"(values\.)?topology\.rte\.dev/[a-z/-]*")
KEYS = """\
# Annotations and labels

Keys that rte writes or reads of its own; [the object](../nrt.md) explains what its agent publishes,
[processing groups](../groups.md) those of pods.

| key | what it is | defined in |
|---|---|---|
"""
METRICS = """\
# Metrics of the scheduler

`/metrics` of `rte scheduler --listen`; those of the agent: [metrics](../metrics.md).

| name | kind | labels | meaning |
|---|---|---|---|
| `rte_build_info` | gauge | `version` | always 1 |
"""
EVENTS = """\
# Events and conditions

What the scheduler tells on pods (`kubectl describe pod`).

| reason | type | meaning |
|---|---|---|
"""
CONDITIONS = """\

| condition | of | written when |
|---|---|---|
| `PodScheduled` = False, reason `Unschedulable` | pod | it waits; the message says why |
| `DisruptionTarget` | pod | before it goes, for one of higher priority or with its gang |
| `PodGroupScheduled`, `PodGroupInitiallyScheduled` | PodGroup | its pods are placed, or why not |
"""
PLUGINS = """\
# Plugins of the scheduler

One rule each, named as kube-scheduler names it; in the order in which they are asked.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for name, page in pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=page))
    return files


def on_page_content(html: str, **_: object) -> str:
    """Roles of reStructuredText in docstrings are plain code here."""
    return re.sub(r":\w+:<code>~?", "<code>", html)


def pages() -> dict[str, str]:
    """Name -> Markdown."""
    return {
        "commands": commands(),
        "keys": keys(),
        "scheduler-metrics": metrics(),
        "events": events(),
        "plugins": plugins(),
    }


def commands() -> str:
    """Every command with its arguments, as `--help` tells them."""
    lines = ["# Commands", "", "`rte COMMAND --help` tells the same.", ""]
    _, parsers = cli.build_parser()
    for name, parser in parsers.items():
        cli.configure(name, parser)
        lines += _command(parser, 2)
    return "\n".join(lines)


def _command(parser: Parser, level: int) -> Iterator[str]:
    yield f"{'#' * level} {parser.prog}\n"
    yield f"{parser.description or ''}\n"
    rows, subs = [], []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            subs += action.choices.values()
        elif not isinstance(action, argparse._HelpAction) and action.help != argparse.SUPPRESS:
            rows.append(f"| {_typed(action)} | {_cell(_told(parser, action))} |")
    if rows:
        yield "| argument | meaning |\n|---|---|"
        yield "\n".join(rows) + "\n"
    for line in (parser.epilog or "").splitlines():
        what, _, words = line.partition(": ")
        yield f"{what.capitalize()}: {f'`{words}`' if what == 'example' else words}\n"
    for sub in subs:
        yield from _command(sub, level + 1)


def _typed(action: argparse.Action) -> str:
    value = action.metavar or (action.dest.upper() if action.nargs != 0 else "")
    if action.choices and not action.metavar:
        value = "|".join(map(str, action.choices))
    value = " ".join(value) if isinstance(value, tuple) else value
    flags = [f"`{flag}`" for flag in action.option_strings]
    return (", ".join(flags) + (f" `{value}`" if value else "")).strip()


def _told(parser: Parser, action: argparse.Action) -> str:
    formatter = parser._get_formatter()
    # Brackets side by side would be a link.
    return formatter._expand_help(action).replace("[", "\\[") if action.help else ""


def _cell(words: str) -> str:
    return words.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def keys() -> str:
    """Constants of the code that are keys of ours, with what their comment or module says."""
    rows = []
    for path in sorted((ROOT / "rte").rglob("*.py")):
        text = path.read_text()
        if "topology.rte.dev/" not in text:
            continue
        tree, source = ast.parse(text), text.splitlines()
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                value = node.value.value
                if isinstance(value, str) and KEY.fullmatch(value):
                    rows.append((value, _said(source, node.lineno, tree), path.relative_to(ROOT)))
    assert rows, "no key is found any more"
    return KEYS + "\n".join(
        f"| `{key}` | {_cell(said)} | `{path}` |" for key, said, path in sorted(rows)
    )


def _said(source: list[str], line: int, tree: ast.Module) -> str:
    """The comment above a constant, else the first sentence of its module."""
    comment: list[str] = []
    for text in reversed(source[: line - 1]):
        if not text.startswith("#:"):
            break
        comment.insert(0, text[2:].strip())
    return " ".join(comment) or _prose((ast.get_docstring(tree) or "").split("\n\n")[0])


def _prose(text: str) -> str:
    """A docstring as Markdown: roles and literals of reStructuredText become code."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    return re.sub(r"``([^`]+)``", r"`\1`", text).replace("\n", " ")


def metrics() -> str:
    """The scheduler's registry."""
    rows = [
        f"| `{metric._name}` | {metric._type} | "
        + ", ".join(f"`{name}`" for name in metric._labelnames)
        + f" | {_cell(metric._documentation)} |"
        for metric in vars(SchedulerMetrics()).values()
        if hasattr(metric, "_labelnames")
    ]
    return METRICS + "\n".join(rows)


def events() -> str:
    """The reasons that the scheduler may give."""
    rows = (
        f"| `{reason}` | {kind} | {_cell(words)} |\n"
        for reason, (kind, words) in sorted(REASONS.items())
    )
    return EVENTS + "".join(rows) + CONDITIONS


def plugins() -> str:
    """The rules of the scheduler, in the order in which they are asked."""
    parts = [PLUGINS]
    for plugin in Cycle(Cluster()).profile.plugins:
        said = (inspect.getmodule(type(plugin)).__doc__ or "").strip().split("\n\n")[0]
        owned = ", ".join(f"`{field}`" for field in sorted(plugin.owns))
        parts.append(f"## {plugin.name}\n\n{_prose(said)}\n")
        parts += [f"Owns of the PodSpec: {owned}.\n"] if owned else []
        parts += [f"Honoured: {plugin.says}.\n"] if plugin.says else []
    return "\n".join(parts)
