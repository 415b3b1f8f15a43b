"""The test bed's DRA driver speaks the kubelet's protocol, and its slices are allocated from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from rte.placement.dra import CEL, ClaimNode, DeviceInventory, DeviceSupply, Usage, allocate, decode
from rte.sim import slices
from rte.sysfs.reader import read_machine
from tests.cluster.dra._pb import dra_pb2 as pb
from tests.cluster.dra.driver import SERVICES, Driver, serve

if TYPE_CHECKING:
    from collections.abc import Iterator

FIXTURE = Path(__file__).parents[3] / "fixtures/sysfs/32-2s-gpus"
GPU = "gpu.testbed.rte.dev"
NODE = {"metadata": {"name": "n0", "uid": "node-uid"}}


def claim(name: str = "c", uid: str = "u", *devices: str, **more: Any) -> dict[str, Any]:
    results = [
        {"request": "r", "driver": GPU, "pool": "n0", "device": one, **more} for one in devices
    ]
    allocation = {"allocation": {"devices": {"results": results}}} if devices else {}
    return {"metadata": {"name": name, "namespace": "ns", "uid": uid}, "status": allocation}


class Kubelet:
    """What a kubelet would call, on the real sockets."""

    def __init__(self, folder: Path) -> None:
        self.claims: dict[str, dict[str, Any]] = {}
        self.log = folder / "log"
        self.driver = Driver(GPU, lambda _, name: self.claims.get(name), self.log)
        self.servers = serve(self.driver, folder / "plugins", folder)
        self.registry = folder / f"{GPU}-reg.sock"

    def call(self, socket: str | Path, method: str, request: Any, answer: Any) -> Any:
        with grpc.insecure_channel(f"unix://{socket}") as channel:
            call = channel.unary_unary(
                method,
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=answer.FromString,
            )
            return call(request, timeout=5)

    def register(self) -> Any:
        root = "/pluginregistration.Registration"
        info = self.call(self.registry, f"{root}/GetInfo", pb.InfoRequest(), pb.PluginInfo)
        status = pb.RegistrationStatus(plugin_registered=True)
        method = f"{root}/NotifyRegistrationStatus"
        self.call(self.registry, method, status, pb.RegistrationStatusResponse)
        return info

    def prepare(self, *claims: dict[str, Any], service: str = SERVICES[0]) -> Any:
        self.claims |= {one["metadata"]["name"]: one for one in claims}
        wanted = pb.PrepareRequest(claims=[pb.Claim(**one["metadata"]) for one in claims])
        endpoint = self.register().endpoint
        return self.call(
            endpoint, f"/{service}/NodePrepareResources", wanted, pb.PrepareResponse
        ).claims

    def unprepare(self, one: dict[str, Any]) -> Any:
        wanted = pb.UnprepareRequest(claims=[pb.Claim(**one["metadata"])])
        method = f"/{SERVICES[0]}/NodeUnprepareResources"
        return self.call(self.register().endpoint, method, wanted, pb.UnprepareResponse).claims


@pytest.fixture
def kubelet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubelet]:
    made = Kubelet(tmp_path_factory.mktemp("k"))
    yield made
    for server in made.servers:
        server.stop(grace=None).wait()


def test_it_registers(kubelet: Kubelet) -> None:
    info = kubelet.register()

    assert (info.type, info.name) == ("DRAPlugin", GPU)
    assert list(info.supported_versions) == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]
    assert kubelet.driver.registered.is_set()


@pytest.mark.parametrize("service", SERVICES)
def test_it_prepares_what_a_claim_was_given(kubelet: Kubelet, service: str) -> None:
    answer = kubelet.prepare(claim("c", "u", "gpu-0", "gpu-1"), service=service)

    assert not answer["u"].error
    assert [(d.pool_name, d.device_name) for d in answer["u"].devices] == [
        ("n0", "gpu-0"),
        ("n0", "gpu-1"),
    ]
    again = kubelet.prepare(claim("c", "u", "gpu-0", "gpu-1"), service=service)
    assert again["u"] == answer["u"]


def test_it_refuses_by_claim_and_with_a_reason(kubelet: Kubelet) -> None:
    first = claim("c", "u", "gpu-0")
    kubelet.prepare(first)

    answer = kubelet.prepare(claim("d", "v", "gpu-0"), claim("e", "w", "gpu-1"), claim("f", "x"))
    assert "prepared for another claim" in answer["v"].error
    assert not answer["w"].error
    assert "not allocated" in answer["x"].error

    assert not kubelet.unprepare(first)["u"].error
    assert not kubelet.prepare(claim("d", "v", "gpu-0"))["v"].error
    told = [json.loads(line)["what"] for line in kubelet.log.read_text().splitlines()]
    assert {"registered", "prepared", "refused", "unprepared"} == set(told)


def test_shares_and_watchers_do_not_clash(kubelet: Kubelet) -> None:
    kubelet.prepare(claim("c", "u", "gpu-0", shareID="1"))

    assert not kubelet.prepare(claim("d", "v", "gpu-0", shareID="2"))["v"].error
    assert not kubelet.prepare(claim("e", "w", "gpu-0", adminAccess=True))["w"].error


def test_slices_say_where_the_devices_of_a_machine_are() -> None:
    machine = read_machine(FIXTURE / "sys", FIXTURE / "proc")
    inventory = DeviceInventory()
    for name in slices.DRIVERS:
        for one in slices.slices_of(machine, NODE, name):
            inventory.put_slice(decode.resource_slice(one))
    classes = {kind: decode.device_class(slices.class_of(d)) for d, kind in slices.DRIVERS.items()}
    node = ClaimNode(name="n0")
    supply = DeviceSupply(
        pools=inventory.pools(node), classes=classes, usage=Usage(), expressions=CEL()
    )
    pair = decode.resource_claim(
        {
            "metadata": {"name": "pair"},
            "spec": {
                "devices": {
                    "requests": [
                        {"name": kind, "exactly": {"deviceClassName": kind, "count": 1}}
                        for kind in ("gpu", "nic")
                    ],
                    "constraints": [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}],
                }
            },
        }
    )

    verdict = allocate(node, [pair], supply)

    assert verdict.fits
    roots = {
        device.device.attributes["resource.kubernetes.io/pcieRoot"].string
        for pool in supply.pools
        for device in pool.devices
        for result in verdict.allocations["pair"].devices.results
        if device.id.device == result.device
    }
    assert len(roots) == 1


def test_a_driver_that_knows_less_publishes_less() -> None:
    machine = read_machine(FIXTURE / "sys", FIXTURE / "proc")
    (bare,) = slices.slices_of(machine, NODE, GPU, without=["numaNode", "pcieRoot"])

    names = {name for device in bare["spec"]["devices"] for name in device["attributes"]}
    assert names == {"index", "vendor", "resource.kubernetes.io/pciBusID"}
