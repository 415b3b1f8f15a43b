"""The drift alarm's memory: the first difference of each kubelet version and configuration."""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rte import __version__, errors
from rte.nrt import case as cases
from rte.placement.drift import wording

if TYPE_CHECKING:
    from pathlib import Path

    from rte.placement.drift import Case

logger = logging.getLogger(__name__)

#: Case files that are kept; the oldest go first.
MOST_CASES = 100


class CaseBook:
    """Tells of a difference once for each kubelet version and configuration.

    Args:
        folder: where case files are kept, made when it is not there; None: nowhere. Cases that it
            has from before a restart are not told again.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._told: set[str] = set()

    def tell(self, case: Case, node: str) -> str:
        """Log and keep the case if it is the first of its kind; its line, else empty."""
        file = cases.CaseFile(
            case=case,
            node=node,
            recorded=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            rte=__version__,
        )
        if file.id in self._told:
            return ""
        self._told.add(file.id)
        where = self._keep(file)
        if where == "":
            return ""
        version = case.prediction.before.kubelet_version or "of unknown version"
        line = (
            f"kubelet {version} of {node} did not do as predicted ({case.result}): "
            f"{wording.headline(case)}"
        )
        logger.warning("%s; %s", line, where or "give --case-dir to keep what it was")
        return line

    def _keep(self, file: cases.CaseFile) -> str | None:
        """Where the case is kept; None: nowhere, empty: it was known before."""
        if self._folder is None:
            return None
        path = self._folder / f"{file.id}.json"
        try:
            text = cases.encode(file)
            self._folder.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as out:
                out.write(text + "\n")
            self._tidy(self._folder)
        except FileExistsError:
            return ""
        except (OSError, errors.RteError) as error:
            with suppress(OSError):
                path.unlink()  # half of one would be taken for a known one for ever
            return f"the case cannot be kept: {error}"
        return f"see rte explain --case {path}"

    @staticmethod
    def _tidy(folder: Path) -> None:
        found = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for path in found[:-MOST_CASES]:
            with suppress(FileNotFoundError):
                path.unlink()
