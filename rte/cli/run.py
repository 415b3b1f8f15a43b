"""``rte run``: the agent, as a daemon or once."""

from __future__ import annotations

import asyncio
import os
import platform
from dataclasses import replace
from typing import TYPE_CHECKING

from rte import config
from rte.agent import memory
from rte.telemetry import logs

if TYPE_CHECKING:
    import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the agent's flags."""
    config.add_arguments(parser, "run")


def run(args: argparse.Namespace) -> int:
    """Publish once, or until stopped; 0 = it was published."""
    memory.begin()
    settings = config.load("run", vars(args), os.environ)
    logs.setup(settings.log)
    agent = settings.agent
    if not agent.node_name:
        agent = replace(agent, node_name=platform.node().lower())
    if agent.oneshot:
        from rte.agent import oneshot  # here: neither program loads the other's libraries

        asyncio.run(oneshot.run(agent, os.environ))
        return 0
    memory.import_http_client()
    from rte.agent import daemon

    return daemon.run(agent)
