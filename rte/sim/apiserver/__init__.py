"""An API server in this process, true to the protocol of the real one.

``Server`` speaks HTTP; ``API`` is the same thing without a socket. Both share one set of objects.
"""

from rte.sim.apiserver.api import API, DeleteOptions, Options, Query
from rte.sim.apiserver.server import Server
from rte.sim.apiserver.status import StatusError

__all__ = ["API", "DeleteOptions", "Options", "Query", "Server", "StatusError"]
