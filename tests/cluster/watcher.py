"""Follows a collection in a thread: what a consumer of the API gets to see, and when."""

from __future__ import annotations

import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import orjson
import urllib3

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Seen:
    """One watch event, by the wall clock as it arrived."""

    at: float
    kind: str
    object: dict[str, Any]
    size: int


@dataclass
class Watcher:
    """Follows a collection in a thread of its own."""

    cluster: Cluster
    path: str
    selector: str
    events: list[Seen] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def start(self) -> Self:
        """Begin; returns at once."""
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def _run(self) -> None:
        """Events by the wall clock of their bytes' arrival, before anything is decoded."""
        authority = str(self.cluster.authority.certificate)
        headers = {"Authorization": f"Bearer {self.cluster.info['token']}"}
        with urllib3.PoolManager(ca_certs=authority, headers=headers, retries=False) as pool:
            while self.cluster.dir.exists():
                try:
                    self._follow(pool)
                except urllib3.exceptions.HTTPError:
                    time.sleep(0.2)  # the API server is away

    def _follow(self, pool: urllib3.PoolManager) -> None:
        query = {"watch": "1", "fieldSelector": self.selector, "timeoutSeconds": "3600"}
        url = f"{self.cluster.server}{self.path}?{urllib.parse.urlencode(query)}"
        response = pool.request("GET", url, preload_content=False, timeout=3600)
        if response.status != 200:
            raise urllib3.exceptions.HTTPError(f"status {response.status}")
        buffer = b""
        for chunk in response.stream(1 << 20):
            now = time.time()
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                event = orjson.loads(line)
                if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                    with self._changed:
                        self.events.append(Seen(now, event["type"], event["object"], len(line)))
                        self._changed.notify_all()

    def wait(self, since: int, fits: Callable[[Seen], bool], seconds: float) -> Seen | None:
        """The first event from index ``since`` on that fits; None: not in time."""
        deadline = time.monotonic() + seconds
        index = since
        with self._changed:
            while True:
                while index < len(self.events):
                    if fits(self.events[index]):
                        return self.events[index]
                    index += 1
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                self._changed.wait(left)
