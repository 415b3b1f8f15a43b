"""The operator's files: the rules of processing groups, and what each profile prefers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from rte import errors
from rte.placement.groups.document import DocumentValue, RequestError
from rte.placement.groups.policies import Policies, read_policies
from rte.reader import jsontext, yamltext
from rte.scheduler.framework.profile import Scoring
from rte.scheduler.plugins.registry import WEIGHED
from rte.scheduler.plugins.scoring_strategy import STRATEGIES, ScoringStrategy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import Path

T = TypeVar("T")

#: Beyond it a preference is no preference any more; kube-scheduler's own are 1 to 3.
MAX_WEIGHT = 100


def load_policies(path: Path | None, saved: object = None) -> Policies:
    """The rules of processing groups; without a file the saved ones, else the defaults.

    Raises:
        errors.UsageError: the file cannot be read, or has a fault.
    """
    return _load("--groups-policy", path, saved, read_policies) or Policies()


def load_scoring(
    path: Path | None, names: Collection[str] = (), saved: object = None
) -> dict[str, Scoring]:
    """``spec.schedulerName`` -> what its pods prefer; none where no file is given.

    Args:
        path: of the file.
        names: profiles that there are; none: any.
        saved: what such a file said when a cluster was saved, for want of one.

    Raises:
        errors.UsageError: the file cannot be read, or has a fault.
    """
    return _load("--scores", path, saved, lambda it: read_scoring(it, names)) or {}


def read_scoring(document: Any, names: Collection[str] = ()) -> dict[str, Scoring]:
    """Read the content of that file (None: an empty one).

    Raises:
        RequestError: the first fault found.
    """
    root = _ScoreSetting("", {} if document is None else document)
    profiles = (each for key, each in root.items(("profiles",)) if key == "profiles")
    return {name: it.scoring() for each in profiles for name, it in each.items(names)}


class _ScoreSetting(DocumentValue):
    """A value of the file with scores."""

    def items(self, known: Collection[str]) -> Iterator[tuple[str, _ScoreSetting]]:
        """Keys and values; ``known``: the keys that there are, none: any."""
        if not isinstance(self.value, dict):
            self.fail("type", "must be an object")
        for key in self.value:
            if known and key not in known:
                self.at(key).fail("unknown-field", f"is not known; known are {', '.join(known)}")
            yield key, self.at(key)

    def scoring(self) -> Scoring:
        given = dict(self.items(("scoringStrategy", "weights")))
        weights, strategy = {}, ""
        if "scoringStrategy" in given:
            strategy = given["scoringStrategy"].one_of(STRATEGIES)
        if "weights" in given:
            for name, weight in given["weights"].items(WEIGHED):
                if name == ScoringStrategy.name and not strategy:
                    weight.fail("missing", "needs a scoringStrategy")
                weights[name] = float(weight.whole(0, MAX_WEIGHT))
        return Scoring(strategy=strategy, weights=weights)


def _load(flag: str, path: Path | None, saved: object, read: Callable[[Any], T]) -> T | None:
    try:
        if path is None:
            return None if saved is None else read(saved)
        return read(yamltext.load(path.read_bytes(), "rules", jsontext.FILE))
    except (OSError, errors.MalformedError, RequestError) as error:
        raise errors.UsageError(f"{flag} {path or 'of the archive'}: {error}") from error
