"""Which objects and files of others cannot be read now, so that it is told once (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rte.telemetry.effects import Measured, Said

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet


class MalformedObjects:
    """By kind and key, with the reason; metric ``malformed`` has their number."""

    def __init__(self) -> None:
        self._reasons: dict[str, dict[str, str]] = {}

    def keys(self, kind: str) -> AbstractSet[str]:
        """Those of one kind."""
        return self._reasons.get(kind, {}).keys()

    def note(self, kind: str, key: str, why: str = "", name: str = "") -> list[Measured | Said]:
        """What became of reading one; without ``why`` it is sound, or gone. Told is what is new."""
        known = self._reasons.setdefault(kind, {})
        if known.get(key, "") == why:
            return []
        if why:
            known[key] = why
        else:
            del known[key]
        number = Measured("malformed", float(len(known)), labels=(kind,), how="set")
        return [number, Said("warning", f"{kind} {name or key}: {why}")] if why else [number]
