"""``rte render``: the ids of an allocation in the application's own file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rte import errors, extensions
from rte.placement.groups.allocation import parse_record
from rte.placement.groups.delivery.template import render
from rte.reader import jsontext
from rte.reader.files import read_text

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument(
        "form",
        choices=("template", "triad"),
        help="template: ${path} in any text; triad: NHD's file",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the file to fill in")
    parser.add_argument(
        "--allocation",
        type=Path,
        required=True,
        metavar="FILE",
        help="the pod's annotation topology.rte.dev/allocation, as the downward API writes it",
    )
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="where to (default: standard output)"
    )


def run(args: argparse.Namespace) -> int:
    """Run the command."""
    allocation = read_text(args.allocation)
    record = parse_record(allocation)
    if args.form == "triad":
        text = extensions.load(extensions.DIALECTS, "nhd").filled(read_text(args.file), record)
    else:
        text = render(read_text(args.file), jsontext.load(allocation, "allocation"))
    if args.out is None:
        if sys.stdout.isatty():
            print(text, end="")
        else:  # the application's file as it is
            sys.stdout.buffer.write(text.encode())
            sys.stdout.buffer.flush()
        return 0
    try:
        args.out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise errors.UsageError(f"cannot write {args.out}: {error.strerror}") from error
    return 0
