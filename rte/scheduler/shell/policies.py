"""The operator's file with the rules of processing groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml

from rte import errors
from rte.placement.groups.document import RequestError
from rte.placement.groups.policies import Policies, read_policies

if TYPE_CHECKING:
    from pathlib import Path


def load_policies(path: Path | None) -> Policies:
    """The rules; the defaults where no file is given.

    Raises:
        errors.UsageError: the file cannot be read, or has a fault.
    """
    if path is None:
        return Policies()
    try:
        return read_policies(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError, RequestError) as error:
        why = " ".join(str(error).split())
        raise errors.UsageError(f"--groups-policy {path}: {why}") from error
