"""The command line: one module per command, loaded only when that command runs."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from rte import __version__, errors, extensions
from rte.cli import terminal
from rte.cli.parsing import Command, Parser

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: By name; the module of each defines ``configure(parser)`` and ``run(args) -> int``.
COMMANDS = {
    "demo": Command(
        "show a whole cluster in this process; needs nothing installed",
        "rte demo --nodes 6 --policy restricted",
        extra="demo",
    ),
    "install": Command(
        "print, or run, what builds the images and installs agent and scheduler",
        "rte install --layout kubeadm --registry registry.example.com/team",
    ),
    "doctor": Command(
        "check a cluster: agents, kubelets, rights, versions, drift; and say what to do",
        "rte doctor",
        "something has failed",
    ),
    "run": Command(
        "read this node and publish its NodeResourceTopology (the DaemonSet agent)",
        "rte run --oneshot --sink stdout",
    ),
    "scheduler": Command(
        "place pods so that no kubelet rejects them (scheduler and extender)",
        "rte scheduler --no-leader-elect",
    ),
    "topology": Command(
        "show the machine as the agent sees it (text, JSON or SVG)",
        "rte topology -o svg > machine.svg",
    ),
    "explain": Command(
        "show for each node and zone whether a pod fits, and why not, in the kubelet's words",
        "rte explain -f pod.yaml",
        "the pod fits nowhere",
    ),
    "fit": Command(
        "count how many of a pod fit now, or whether a gang does, and what is missing",
        "rte fit -f pod.yaml --count 8",
        "it does not fit",
    ),
    "defrag": Command(
        "find the smallest set of moves that opens a place for a pod, and make them",
        "rte defrag default/waiting-pod",
        "no moves open a place",
    ),
    "drain": Command(
        "list the pods that a restart of their kubelet would refuse, and move them first",
        "rte drain NODE",
        "a restart would do harm",
    ),
    "balloon": Command(
        "make an autoscaler add the machines that waiting pods need for their zones",
        "rte balloon -o json",
        "a pod waits that no machine like those here takes",
    ),
    "view": Command(
        "show the zones of the cluster in a browser (read-only)",
        "rte view --listen 127.0.0.1:8090",
    ),
    "simulate": Command(
        "place pods onto nodes offline, from files or machines",
        "rte simulate -f pods.yaml --machine '2x32*4' --compare",
        "a pod found no place",
        extra="demo",
    ),
    "render": Command(
        "write the ids of an allocation into the application's own file",
        "rte render template app.conf --allocation /etc/podinfo/allocation",
    ),
    "nri": Command(
        "pin the containers of pods with processing groups (plugin of the runtime)",
        "rte nri --node-name worker-1",
    ),
    "snapshot": Command(
        "capture this node's files as a fixture, or a cluster's objects (--cluster)",
        "rte snapshot node.tar.gz",
    ),
    "completion": Command(
        "write a script that completes commands and flags, for bash, zsh or fish",
        "rte completion bash > ~/.local/share/bash-completion/completions/rte",
        extra="demo",
    ),
}


@cache
def every_command() -> Mapping[str, Command]:
    """All commands, those that are registered by entry points last."""
    more = extensions.registered(extensions.COMMANDS)
    return COMMANDS | {name: found.load().COMMAND for name, found in more.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 = done, 1 = failed (one line on stderr), 2 = usage error."""
    # What gRPC's C library logs by itself comes as exceptions as well.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    wanted = next((word for word in words if not word.startswith("-")), "")
    if not words:
        build_parser()[0].print_help()
        return 0
    # The demo draws on the terminal; all of its objects are its own.
    with contextlib.nullcontext() if wanted == "demo" else terminal.only_text():
        return _run(words, wanted)


def _run(words: Sequence[str], wanted: str) -> int:
    known = COMMANDS if wanted in COMMANDS else every_command()
    prog = f"rte {wanted}" if wanted in known else "rte"
    try:
        args = _parse(words, wanted)
        for line in _unknown_variables():
            print(f"{prog}: note: {line}", file=sys.stderr)
        return int(_module(args.command).run(args))
    except errors.UsageError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    except errors.RteError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("rte.sim"):
            print(
                f"{prog}: this is the agent's image, which holds no simulations: "
                "run it in the scheduler's",
                file=sys.stderr,
            )
            return 2
        missing = (error.name or "").partition(".")[0]
        if wanted not in known or missing in ("", "rte"):
            raise
        extra = known[wanted].extra
        print(
            f"{prog}: {missing} is not installed: pip install 'rte-numa[{extra}]'", file=sys.stderr
        )
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"{prog}: {errors.RteError(where + errors.why_unreadable(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parse(words: Sequence[str], wanted: str) -> argparse.Namespace:
    known = COMMANDS if wanted in COMMANDS else every_command()
    if wanted in known and words[0] == wanted:
        # Alone: the flags that are near an unknown one are the command's, and it is quicker.
        parser = Parser(prog=f"rte {wanted}", **known[wanted].described)
        configure(wanted, parser)
        return parser.parse_words(words[1:], argparse.Namespace(command=wanted))
    parser, commands = build_parser()
    if wanted and wanted not in known:
        if words[0].startswith("-"):
            parser.error(f"give a command before {words[0]}")
        parser.error(f"unknown command {wanted}{errors.meant(wanted, known)}")
    if wanted:
        configure(wanted, commands[wanted])
    return parser.parse_words(words)


def build_parser() -> tuple[Parser, dict[str, Parser]]:
    """The parser of all command lines, and those of its commands, which have no flags yet."""
    parser = Parser(prog="rte", description="NUMA-aligned scheduling, made exact.")
    parser.add_argument("--version", action="version", version=f"rte {__version__}")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )
    return parser, {
        name: commands.add_parser(name, help=command.help, **command.described)
        for name, command in every_command().items()
    }


def configure(command: str, parser: Parser) -> None:
    """Add the flags of a command; its module is loaded for that."""
    _module(command).configure(parser)


def _unknown_variables() -> list[str]:
    from rte import config  # here: --help and --version do without

    return config.unknown_variables(os.environ)


def _module(command: str) -> Any:
    if command not in COMMANDS:
        return extensions.load(extensions.COMMANDS, command)
    return importlib.import_module(f"rte.cli.{command}")
