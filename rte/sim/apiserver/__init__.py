"""An API server in this process, true to the protocol of the real one.

``APIServer`` speaks HTTP; ``API`` is the same thing without a socket. Both share one set of
objects.
"""

from rte.sim.apiserver.api import API
from rte.sim.apiserver.protocol.server import APIServer
from rte.sim.apiserver.status import StatusError
from rte.sim.apiserver.storage.query import Query
from rte.sim.apiserver.verbs.bodies import WriteOptions
from rte.sim.apiserver.verbs.deleting import DeleteOptions

__all__ = ["API", "APIServer", "DeleteOptions", "Query", "StatusError", "WriteOptions"]
