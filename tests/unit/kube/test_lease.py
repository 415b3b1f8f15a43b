"""The heartbeat Lease."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from rte import errors
from rte.kube.lease import Heartbeat, micro_time
from rte.kube.resources import LEASES

if TYPE_CHECKING:
    from rte.kube.client import Client
    from rte.sim.apiserver import APIServer

PATH = LEASES.path("n0", "rte-system")


@pytest.fixture
async def heartbeat(client: Client) -> Heartbeat:
    await client.create("/api/v1/namespaces", {"metadata": {"name": "rte-system"}})
    return Heartbeat(client, "n0", "rte-system", "me", labels={"a": "b"})


def test_micro_time_is_utc_with_six_decimals(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    moment = datetime(2026, 1, 2, 4, 4, 5, 6, timezone(timedelta(hours=1)))
    assert micro_time(moment) == "2026-01-02T03:04:05.000006Z"
    monkeypatch.undo()
    time.tzset()


async def test_it_is_created_renewed_and_released(client: Client, heartbeat: Heartbeat):
    await heartbeat.renew()
    first = await client.get(PATH)
    assert first["spec"]["holderIdentity"] == "me"
    assert first["spec"]["leaseDurationSeconds"] == 40
    assert first["metadata"]["labels"] == {"a": "b"}
    await heartbeat.renew()
    second = await client.get(PATH)
    assert second["spec"]["renewTime"] > first["spec"]["renewTime"]
    assert second["spec"]["acquireTime"] == first["spec"]["acquireTime"]
    age = datetime.now(UTC) - datetime.fromisoformat(second["spec"]["renewTime"])
    assert timedelta(0) <= age < timedelta(seconds=5)
    await heartbeat.release()
    spec = (await client.get(PATH))["spec"]
    assert not spec.get("holderIdentity")
    assert spec["leaseDurationSeconds"] == 1


async def test_after_a_release_it_is_taken_again(client: Client, heartbeat: Heartbeat):
    await heartbeat.renew()
    await heartbeat.release()
    await heartbeat.renew()
    spec = (await client.get(PATH))["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("me", 40)


async def test_a_deleted_lease_is_made_again(client: Client, heartbeat: Heartbeat):
    await heartbeat.renew()
    await client.delete(PATH)
    await heartbeat.renew()
    assert (await client.get(PATH))["spec"]["holderIdentity"] == "me"


async def test_a_lease_that_went_with_its_owner_is_made_again_with_the_new_one(client: Client):
    await client.create("/api/v1/namespaces", {"metadata": {"name": "rte-system"}})
    uids = iter(["first", "second"])

    async def owners() -> list[dict[str, str]]:
        return [{"apiVersion": "v1", "kind": "Node", "name": "n0", "uid": next(uids)}]

    heartbeat = Heartbeat(client, "n0", "rte-system", "me", owners=owners)
    for uid in ("first", "second"):
        await heartbeat.renew()
        await heartbeat.renew()
        (owner,) = (await client.get(PATH))["metadata"]["ownerReferences"]
        assert owner["uid"] == uid
        await client.delete(PATH)


async def test_an_outage_is_raised_and_the_next_renewal_works(
    client: Client, server: APIServer, heartbeat: Heartbeat
):
    await heartbeat.renew()
    server.faults.fail_next(code=500)
    with pytest.raises(errors.KubeError):
        await heartbeat.renew()
    await heartbeat.renew()


async def test_without_having_been_held_there_is_nothing_to_release(
    client: Client, heartbeat: Heartbeat
):
    await heartbeat.release()
    with pytest.raises(errors.KubeError):
        await client.get(PATH)


async def test_of_two_agents_that_overlap_the_one_that_ends_leaves_the_lease_to_the_other(
    client: Client, heartbeat: Heartbeat
):
    newer = Heartbeat(client, "n0", "rte-system", "me")
    await heartbeat.renew()
    await newer.renew()
    await heartbeat.release()
    spec = (await client.get(PATH))["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("me", 40)


async def test_a_lease_that_another_gave_back_is_whole_again_with_the_next_renewal(
    client: Client, heartbeat: Heartbeat
):
    await heartbeat.renew()
    await client.patch(PATH, {"spec": {"holderIdentity": None, "leaseDurationSeconds": 1}})
    await heartbeat.renew()
    spec = (await client.get(PATH))["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("me", 40)


async def test_a_lease_that_went_before_it_is_given_back_is_no_failure(
    client: Client, heartbeat: Heartbeat
):
    await heartbeat.renew()
    await client.delete(PATH)
    await heartbeat.release()
