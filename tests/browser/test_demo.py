"""The page of the demo: what its scheduler decides is on it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys


def test_the_demos_page_shows_its_pods(open_page, picture) -> None:
    command = [sys.executable, "-m", "rte", "demo", "--compare", "--nodes", "4", "--rate", "3"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                found = re.search(r"http://\S+/view", line)
                if found:
                    break
            assert found
            page = open_page(found[0])
            page.wait_for_selector("#state.live", timeout=120_000)
            assert page.locator("article.node").count() == 4
            page.wait_for_function(
                "() => parseInt(document.querySelector('#stats b').innerText) > 8",
                timeout=120_000,
            )
            page.wait_for_function(
                "() => document.querySelectorAll('#decisions li').length > 8", timeout=120_000
            )
            page.wait_for_function(
                "() => / [1-9]\\d* running/.test(document.querySelector('#remark').innerText)",
                timeout=120_000,
            )
            assert page.inner_text("#remark").startswith("Plain Kubernetes, with ")
            picture(page, "demo")
            page.click("#decisions summary")
            assert re.search(r"demo/\S+ → node-\w, zone \d", page.inner_text("#decisions"))
            page.close()
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=120)
