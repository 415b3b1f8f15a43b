"""What only kubectl asks for, over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import aiohttp

    from rte.sim.apiserver import API

PODS = "/api/v1/namespaces/default/pods"


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


async def get(http: aiohttp.ClientSession, path: str) -> tuple[int, Any]:
    async with http.get(path) as answer:
        return answer.status, await answer.json()


@pytest.mark.parametrize(
    ("group", "path"),
    [
        ("core", "/openapi/v3/api/v1"),
        ("apps", "/openapi/v3/apis/apps/v1"),
        ("nrt", "/openapi/v3/apis/topology.node.k8s.io/v1alpha2"),
    ],
)
async def test_every_kind_is_explained(http: aiohttp.ClientSession, group: str, path: str) -> None:
    code, document = await get(http, path)
    assert code == 200
    schemas = document["components"]["schemas"]
    kinds = {
        told["kind"]
        for schema in schemas.values()
        for told in schema.get("x-kubernetes-group-version-kind", ())
    }
    wanted = {"core": "Pod", "apps": "Deployment", "nrt": "NodeResourceTopology"}
    assert wanted[group] in kinds
    described = [name for name, schema in schemas.items() if schema.get("description")]
    assert described


async def test_references_lead_somewhere(http: aiohttp.ClientSession) -> None:
    _, document = await get(http, "/openapi/v3/api/v1")
    schemas = document["components"]["schemas"]

    def references(value: Any) -> set[str]:
        if isinstance(value, dict):
            own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
            return own.union(*map(references, value.values()))
        return set().union(*map(references, value)) if isinstance(value, list) else set()

    known = {f"#/components/schemas/{name}" for name in schemas}
    assert references(schemas) <= known


async def test_logs_and_sessions_say_that_nothing_runs(
    api: API, http: aiohttp.ClientSession
) -> None:
    api.create("pods", pod("waits"), "default")
    api.create("pods", pod("runs", nodeName="n"), "default")
    async with http.get(f"{PODS}/waits/log") as answer:
        assert (answer.status, await answer.text()) == (200, "")
    code, told = await get(http, f"{PODS}/runs/log")
    assert code == 501
    assert "containers are simulated here" in told["message"]
    for session in ("exec", "attach", "portforward"):
        code, told = await get(http, f"{PODS}/waits/{session}")
        assert (code, told["message"]) == (400, "pod waits does not have a host assigned")
        assert (await get(http, f"{PODS}/runs/{session}"))[0] == 501
        assert (await get(http, f"{PODS}/none/{session}"))[0] == 404


async def test_a_question_about_rights_is_answered_and_not_stored(
    http: aiohttp.ClientSession,
) -> None:
    url = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    body = {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods"}}}
    async with http.post(url, json=body) as answer:
        assert answer.status == 201
        assert (await answer.json())["status"] == {"allowed": True}
    _, found = await get(http, "/apis/authorization.k8s.io/v1")
    row = next(r for r in found["resources"] if r["name"] == "selfsubjectaccessreviews")
    assert row["verbs"] == ["create"]


async def test_scale_over_http(api: API, http: aiohttp.ClientSession) -> None:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pod("x")["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    api.create("deployments", {"metadata": {"name": "web"}, "spec": spec}, "default")
    url = "/apis/apps/v1/namespaces/default/deployments/web/scale"
    kind = {"Content-Type": "application/merge-patch+json"}
    async with http.patch(url, json={"spec": {"replicas": 4}}, headers=kind) as answer:
        assert answer.status == 200
    assert (await get(http, url))[1]["spec"] == {"replicas": 4}
    async with http.patch(url, json={"spec": {"replicas": -1}}, headers=kind) as answer:
        assert answer.status == 422
    assert api.get("deployments", "web", "default")["spec"]["replicas"] == 4


async def test_apply_over_http_says_whether_it_created(http: aiohttp.ClientSession) -> None:
    url = "/api/v1/namespaces/default/configmaps/c?fieldManager=me"
    kind = {"Content-Type": "application/apply-patch+yaml"}
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: '1'}\n"
    for code in (201, 200):
        async with http.patch(url, data=text, headers=kind) as answer:
            assert answer.status == code
    async with http.patch(url, data="a: [", headers=kind) as answer:
        assert answer.status == 400
