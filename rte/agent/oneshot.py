"""One consistent reading of this node, published once."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from rte import errors, nrt
from rte.agent import sinks
from rte.agent.settings import SinkKind
from rte.model.node import NodeReading
from rte.sysfs import read_machine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rte.agent.settings import AgentSettings
    from rte.model.machine import Machine

logger = logging.getLogger(__name__)


async def run(settings: AgentSettings, environ: Mapping[str, str]) -> None:
    """Read, account, encode, publish.

    Raises:
        errors.RteError: the machine or a source that was asked for cannot be read, no consistent
            state was seen within ``oneshot_timeout``, or the sink refuses.
    """
    machine = read_machine(settings.sysfs, settings.procfs)
    reading = NodeReading(node_name=settings.node_name, machine=machine)
    encoded = nrt.build(reading, settings.nrt_options())
    text = sinks.render(encoded.object, settings.output)
    if settings.sink.kind is SinkKind.FILE and settings.sink.path:
        sinks.write_file(settings.sink.path, text)
    else:
        sinks.write_stdout(text)
