"""``python -m tests.cluster.dra.driver``: a DRA driver that a real kubelet registers and calls.

Runs in a node's namespace. Prepares what the API server says a claim was given, and hands out CDI
names that nobody needs, because the stand-in runtime starts nothing. ``--log`` gets one JSON line
per call.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from rte import errors
from rte.sim.slices import DRIVERS, class_of, slices_of
from rte.sysfs.reader import read_machine
from tests.cluster.api import Api
from tests.cluster.dra._pb import dra_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

API = "/apis/resource.k8s.io/v1"
#: What the kubelet calls; both versions are the same on the wire.
SERVICES = ("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", "v1beta1.DRAPlugin")
VERSIONS = ("v1.DRAPlugin", "v1beta1.DRAPlugin")


class Driver:
    """One driver of a node.

    Attributes:
        prepared: claim UID -> (pool, device, requests, share) of what was prepared.
        registered: set once the kubelet has taken the driver in.
    """

    def __init__(
        self, name: str, read_claim: Callable[[str, str], dict[str, Any] | None], log: Path | None
    ) -> None:
        self.name = name
        self.prepared: dict[str, list[dict[str, Any]]] = {}
        self.registered = threading.Event()
        self._read_claim = read_claim
        self._log = log
        self._lock = threading.Lock()

    # -- registration

    def info(self, endpoint: str) -> Any:
        """Answer of ``GetInfo``."""
        return pb.PluginInfo(
            type="DRAPlugin", name=self.name, endpoint=endpoint, supported_versions=VERSIONS
        )

    def registration_status(self, status: Any) -> Any:
        """``NotifyRegistrationStatus``."""
        self._tell("registered" if status.plugin_registered else "refused", error=status.error)
        if status.plugin_registered:
            self.registered.set()
        return pb.RegistrationStatusResponse()

    # -- devices

    def prepare(self, request: Any) -> Any:
        """``NodePrepareResources``: idempotent, claim by claim."""
        answer = pb.PrepareResponse()
        for claim in request.claims:
            try:
                devices = self._prepare(claim)
            except LookupError as error:
                answer.claims[claim.uid].error = str(error)
                self._tell("refused", claim=claim.name, error=str(error))
                continue
            self._tell("prepared", claim=claim.name, devices=[one["device"] for one in devices])
            for one in devices:
                answer.claims[claim.uid].devices.add(
                    request_names=[one["request"]],
                    pool_name=one["pool"],
                    device_name=one["device"],
                    cdi_device_ids=[f"{self.name}/device={one['device']}"],
                    share_id=one.get("shareID"),
                )
            answer.claims[claim.uid].error = ""
        return answer

    def unprepare(self, request: Any) -> Any:
        """``NodeUnprepareResources``: a claim that is not there is done."""
        answer = pb.UnprepareResponse()
        for claim in request.claims:
            with self._lock:
                devices = self.prepared.pop(claim.uid, [])
            self._tell("unprepared", claim=claim.name, devices=[one["device"] for one in devices])
            answer.claims[claim.uid].error = ""
        return answer

    def _prepare(self, claim: Any) -> list[dict[str, Any]]:
        found = self._read_claim(claim.namespace, claim.name)
        if found is None or found["metadata"]["uid"] != claim.uid:
            raise LookupError(f"claim {claim.namespace}/{claim.name} is not there")
        allocation = found.get("status", {}).get("allocation")
        if allocation is None:
            raise LookupError(f"claim {claim.namespace}/{claim.name} is not allocated")
        own = [one for one in allocation["devices"]["results"] if one["driver"] == self.name]
        with self._lock:
            for uid, devices in self.prepared.items():
                twice = [d for d in devices if uid != claim.uid and _clashes(d, own)]
                if twice:
                    raise LookupError(f"device {twice[0]['device']} is prepared for another claim")
            self.prepared[claim.uid] = own
        return own

    def _tell(self, what: str, **more: Any) -> None:
        line = json.dumps({"driver": self.name, "what": what, **more})
        if self._log is None:
            print(line, flush=True)
            return
        with self._lock, self._log.open("a", encoding="utf-8") as out:
            out.write(line + "\n")


def _clashes(device: dict[str, Any], own: list[dict[str, Any]]) -> bool:
    return any(
        one["device"] == device["device"]
        and "shareID" not in one
        and not one.get("adminAccess")
        and not device.get("adminAccess")
        for one in own
    )


def serve(driver: Driver, plugins: Path, registry: Path) -> list[grpc.Server]:
    """Listen for the kubelet: on the plugin's socket, then on the one that it is found by."""
    folder = plugins / driver.name
    folder.mkdir(parents=True, exist_ok=True)
    endpoint = folder / "dra.sock"
    calls = {
        service: grpc.method_handlers_generic_handler(
            service,
            {
                "NodePrepareResources": _unary(driver.prepare, pb.PrepareRequest),
                "NodeUnprepareResources": _unary(driver.unprepare, pb.UnprepareRequest),
            },
        )
        for service in SERVICES
    }
    registration = grpc.method_handlers_generic_handler(
        "pluginregistration.Registration",
        {
            "GetInfo": _unary(lambda _: driver.info(str(endpoint)), pb.InfoRequest),
            "NotifyRegistrationStatus": _unary(driver.registration_status, pb.RegistrationStatus),
        },
    )
    return [
        _listen(endpoint, *calls.values()),
        _listen(registry / f"{driver.name}-reg.sock", registration),
    ]


def _listen(socket: Path, *handlers: grpc.GenericRpcHandler) -> grpc.Server:
    socket.unlink(missing_ok=True)
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers(handlers)
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    return server


def _unary(handle: Callable[[Any], Any], request: Any) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(
        lambda message, _: handle(message),
        request_deserializer=request.FromString,
        response_serializer=lambda answer: answer.SerializeToString(),
    )


def publish(api: Api, objects: list[dict[str, Any]], plural: str) -> None:
    """Create the objects, or replace what is there under their names."""
    for one in objects:
        path = f"{API}/{plural}"
        try:
            api.create(path, one)
        except errors.KubeError as error:
            if error.status != 409:
                raise
            name = one["metadata"]["name"]
            version = api.get(f"{path}/{name}")["metadata"]["resourceVersion"]
            metadata = {**one["metadata"], "resourceVersion": version}
            api.request("PUT", f"{path}/{name}", {**one, "metadata": metadata})


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="driver", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--node", required=True)
    add("--server", required=True, help="URL of the API server")
    add("--ca", type=Path, required=True)
    add("--token", default="")
    add("--driver", action="append", choices=DRIVERS, help="default: all")
    add("--sysfs-root", type=Path, default=Path("/sys"))
    add("--procfs-root", type=Path, default=Path("/proc"))
    add("--kubelet-dir", type=Path, default=Path("/var/lib/kubelet"))
    add("--without", action="append", default=[], help="attribute not to publish")
    add("--log", type=Path)
    options = parser.parse_args(argv)
    api = Api(options.server, options.ca, options.token)
    machine = read_machine(options.sysfs_root, options.procfs_root)
    node = api.get(f"/api/v1/nodes/{options.node}")

    def read_claim(namespace: str, name: str) -> dict[str, Any] | None:
        return api.find(f"{API}/namespaces/{namespace}/resourceclaims/{name}")

    servers = []
    for name in options.driver or DRIVERS:
        publish(api, [class_of(name)], "deviceclasses")
        slices = slices_of(machine, node, name, without=options.without)
        publish(api, slices, "resourceslices")
        driver = Driver(name, read_claim, options.log)
        folder = options.kubelet_dir
        servers += serve(driver, folder / "plugins", folder / "plugins_registry")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
    for server in servers:
        server.stop(grace=1).wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
