"""``rte view`` of real kubelets, in a real browser."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from rte.model import bits
from tests.browser.conftest import chromium, open_page
from tests.cluster import worlds
from tests.cluster.pods import container, pod
from tests.cluster.test_scheduler import NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.cluster

__all__ = ["chromium", "open_page"]

#: Milliseconds for what comes in the end.
PATIENCE = 90_000


@contextmanager
def viewed(kubeconfig: Path) -> Iterator[str]:
    """The address of the page, as ``rte view`` prints it."""
    command = [sys.executable, "-m", "rte", "view", f"--kubeconfig={kubeconfig}"]
    with subprocess.Popen(
        [*command, "--listen=127.0.0.1:0"], stderr=subprocess.PIPE, text=True, env=os.environ
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"http://\S+/view", line)
            assert found, line
            yield found[0]
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


def until_shows(page: Any, selector: str, text: str) -> None:
    page.wait_for_function(
        "([where, text]) => document.querySelector(where)?.innerText.includes(text)",
        arg=[selector, text],
        timeout=PATIENCE,
    )


def test_the_page_shows_what_real_kubelets_have_and_why_a_pod_waits(
    request: pytest.FixtureRequest, open_page: Callable[..., Any]
) -> None:
    with (
        worlds.real(request, "single-numa-node", ("2x8", "2x8")) as world,
        viewed(world.kubeconfig) as url,
    ):
        page = open_page(url)
        page.set_default_timeout(PATIENCE)
        page.wait_for_selector("#state.live")
        for name in world.nodes:
            page.wait_for_selector(f'article[data-node="{name}"]')

        pinned = pod(container(3, "1Gi"), name="pinned", scheduler=NAME)
        large = pod(container(9, "1Gi"), name="too-large", scheduler=NAME)
        for each in (pinned, large):
            world.create(each)
        running = world.running(pinned)
        node, uid = running["spec"]["nodeName"], running["metadata"]["uid"]
        state = world.state(node, lambda state: uid in state.admitted, "has admitted it")
        (held,) = state.holdings[uid].values()

        # No reload: the page follows.
        until_shows(page, "#waiting", "too-large")
        page.click("#waiting .link:has-text('too-large')")
        for name in world.nodes:
            until_shows(page, "#detail", f"{name} ✗")

        page.goto(f"{url}#pod=default/pinned")
        page.reload()
        until_shows(page, "#detail", bits.format_list(held.cpus))
        assert "✓ CPUs, memory and devices are in one zone." in page.inner_text("#detail")

        world.end(pinned, large)
        page.wait_for_function(
            "() => !document.querySelector('#waiting').innerText.includes('too-large')",
            timeout=PATIENCE,
        )
        world.state(node, lambda state: uid not in state.holdings, "has let go of it")
        page.close()
