"""GPU models by name: ``V100`` is a ``Tesla V100-SXM2-16GB``, ``1080`` is no ``GTX 1080 Ti``."""

from __future__ import annotations

import re
from functools import lru_cache

_WORD = re.compile(r"[a-z0-9]+", re.ASCII)
#: Words that name another model together with the word before them.
_SUFFIXES = frozenset({"ti", "super", "xt", "xtx"})


@lru_cache(maxsize=1024)
def words(name: str) -> tuple[str, ...]:
    """The words of a model's name, in lower case, suffixes joined to the word before."""
    found: list[str] = []
    for word in _WORD.findall(name.lower()):
        if word in _SUFFIXES and found:
            found[-1] += word
        else:
            found.append(word)
    return tuple(found)


def matches(names: tuple[str, ...], model: str) -> bool:
    """Whether a device of this model is one of the named; no names = every device is."""
    if not names:
        return True
    have = words(model)
    return any(_contains(have, words(name)) for name in names)


def _contains(have: tuple[str, ...], want: tuple[str, ...]) -> bool:
    return any(have[i : i + len(want)] == want for i in range(len(have) - len(want) + 1))
