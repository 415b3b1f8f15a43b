"""A cluster in a file: decisions replay to the same answer, and what is private stays behind."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import os
import signal
import sys
import tarfile
from pathlib import Path

import aiohttp
import pytest
import zstandard

from rte.cli import main
from rte.reader import jsontext
from rte.sim import demo
from tests.unit.cli.objects import node_objects, pod_yaml

SECRET = "s3cret-word"
SUFFIXES = ("tar", "tar.gz", "tgz", "tar.zst")


def private(pod):
    """The pod with everything that no decision reads."""
    pod["metadata"] |= {
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET},
        "managedFields": [{"manager": SECRET}],
    }
    pod["spec"] |= {
        "serviceAccountName": SECRET,
        "volumes": [{"name": "v", "secret": {"secretName": SECRET}}],
    }
    pod["spec"]["containers"][0] |= {
        "env": [{"name": "PASSWORD", "value": SECRET}],
        "command": [SECRET],
        "livenessProbe": {"exec": {"command": [SECRET]}},
    }
    pod["status"] = pod.get("status", {}) | {"podIP": SECRET}
    return pod


def cluster_objects():
    waiting = pod_yaml("waiting", 5, tolerations=[{"operator": "Exists"}])
    others = [pod_yaml("small", 2, nodeSelector={"zone": "x"}), pod_yaml("large", 40)]
    budget_of = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "minAvailable": 1},
        "status": {"disruptionsAllowed": 1},
    }
    nodes = [*node_objects("a-full", (4, 5)), *node_objects("b-half", (4,))]
    nodes[0]["metadata"]["labels"] = {"zone": "x"}
    for item in (waiting, *others, *nodes):
        if item["kind"] == "Pod":
            private(item)
            owner = {"kind": "Job", "name": SECRET, "uid": "u", "controller": True}
            item["metadata"]["ownerReferences"] = [owner]
    return [*nodes, budget_of, waiting, *others]


@pytest.fixture
def cluster(write):
    return write("cluster.yaml", cluster_objects())


@pytest.fixture
def said(capsys):
    def run(*words):
        code = main([*words])
        return code, capsys.readouterr().out

    return run


def saved(source, folder, suffix="tar.zst", *more):
    out = folder / f"cluster.{suffix}"
    assert main(["snapshot", "--cluster", str(out), "--from", source, *more]) == 0
    return str(out)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    "question",
    [
        ("explain", "waiting", "-o", "json"),
        ("explain", "large", "-o", "json"),
        ("explain", "small", "-o", "json"),
        ("explain", "--restart"),
        ("defrag", "waiting", "-o", "json"),
        ("fit", "-f", "POD", "--count", "3", "-o", "json"),
    ],
)
def test_decisions_replay_to_the_same_answer(question, suffix, cluster, write, tmp_path, said):
    pod = write("pod.yaml", [pod_yaml("new", 3)])
    words = [pod if word == "POD" else word for word in question]
    archive = saved(cluster, tmp_path, suffix)
    said("fit", "-f", pod, "--from", cluster)  # what was printed before
    assert said(*words, "--from", archive) == said(*words, "--from", cluster)


def test_a_simulation_of_the_saved_cluster_is_the_same(cluster, tmp_path, said):
    archive = saved(cluster, tmp_path)
    before = said("simulate", "-f", cluster, "--compare", "-o", "json")
    assert said("simulate", "-f", archive, "--compare", "-o", "json") == before


@pytest.mark.parametrize("more", [(), ("--redact",)])
def test_what_no_decision_reads_stays_behind(more, cluster, tmp_path):
    archive = Path(saved(cluster, tmp_path, "tar.zst", *more)).read_bytes()
    content = zstandard.decompress(archive, max_output_size=1 << 24)
    kept = content.count(SECRET.encode())
    # The names of owners are read; numbers stand for them as well.
    assert kept == (0 if more else 6)
    for key in (b"managedFields", b"PASSWORD", b"livenessProbe", b"podIP", b"last-applied"):
        assert key not in content


def test_numbers_stand_for_names_and_the_answer_stays(cluster, write, tmp_path, said):
    pod = write("pod.yaml", [pod_yaml("new", 3)])
    plain = said("explain", "-f", pod, "--from", cluster, "-o", "json")
    archive = saved(cluster, tmp_path, "tar.zst", "--redact")
    said("fit", "-f", pod, "--from", archive)
    assert said("explain", "-f", pod, "--from", archive, "-o", "json") == plain
    code, out = said("explain", "namespace-1/pod-6", "--from", archive)
    assert (code, out.splitlines()[0]) == (0, "namespace-1/pod-6 fits 1 of 2 nodes; best: b-half")


def test_the_rules_of_the_scheduler_travel_with_it(cluster, write, tmp_path, said):
    scores = tmp_path / "scores.yaml"
    scores.write_text("profiles: {default-scheduler: {scoringStrategy: MostAllocated}}")
    pod = write("pod.yaml", [pod_yaml("new", 2)])
    archive = saved(cluster, tmp_path, "tar.gz", "--scores", str(scores))
    said("fit", "-f", pod, "--from", archive)
    asked = ("explain", "-f", pod, "-o", "json")
    weighed = said(*asked, "--from", cluster, "--scores", str(scores))
    assert said(*asked, "--from", archive) == weighed
    assert weighed != said(*asked, "--from", cluster)


def tar_of(*members, **fields):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in fields.items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def lying_about_its_size():
    content = bytearray(tar_of(("nodes.json", b"[]")))
    content[124:136] = b"%011o\0" % (1 << 32)
    content[148:156] = b"        "
    content[148:156] = b"%06o\0 " % sum(content[:512])
    return bytes(content)


NODES = ("nodes.json", json.dumps([{"kind": "Node", "metadata": {"name": "n"}}]).encode())
MALICIOUS = {
    "a link": (tar_of(("nodes.json", b""), type=tarfile.SYMTYPE, linkname="/etc/shadow"), "link"),
    "a hard link": (tar_of(("nodes.json", b""), type=tarfile.LNKTYPE, linkname="x"), "link"),
    "a device": (tar_of(("nodes.json", b""), type=tarfile.CHRTYPE), "member"),
    "a way out": (tar_of(("../nodes.json", b"[]")), "member"),
    "a huge member": (lying_about_its_size(), "too early"),
    "many members": (tar_of(*[NODES] * 65), "64 members"),
    "no list": (tar_of(("nodes.json", b"{}")), "no list"),
    "no JSON": (tar_of(("nodes.json", b"[")), "not an archive"),
    "deep JSON": (tar_of(("nodes.json", b"[" * 200 + b"]" * 200)), "64 levels"),
    "a torn file": (tar_of(NODES)[:530], "too early"),
    "no end": (tar_of(NODES)[:1024], "broken"),
    "torn gzip": (gzip.compress(tar_of(NODES))[:60], "decompressed"),
    "torn zstd": (zstandard.compress(tar_of(NODES))[:-9], "broken"),
    "noise": (b"\x28\xb5\x2f\xfd" + bytes(range(256)), "decompressed"),
}


@pytest.mark.parametrize("kind", MALICIOUS)
def test_a_malicious_archive_is_refused_in_one_line(kind, tmp_path, capsys):
    content, why = MALICIOUS[kind]
    path = tmp_path / "evil.tar"
    path.write_bytes(content)
    assert main(["explain", "x", "--from", str(path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert why in err


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_a_bomb_is_refused_while_it_unfolds(compress, tmp_path, capsys, monkeypatch):
    bounds = jsontext.ReadBudget(size=1 << 22, items=1 << 10)
    monkeypatch.setattr("rte.reader.archive.objects.__defaults__", (bounds,))
    path = tmp_path / "bomb.tar"
    path.write_bytes(compress(bytes(1 << 26)))
    assert path.stat().st_size < 1 << 17
    assert main(["fit", "-f", str(path), "--from", str(path)]) == 2
    assert "more than 4194304 bytes" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["c.tar.xz", "c.tar.bz2", "c.zip"])
def test_other_compressions_are_refused(name, cluster, tmp_path, capsys):
    assert main(["snapshot", "--cluster", str(tmp_path / name), "--from", cluster]) == 2
    assert ".tar" in capsys.readouterr().err


async def test_a_running_cluster_is_saved_and_answers_from_the_file(tmp_path, capsys):
    async with demo.DemoCluster(demo.Settings(nodes=2, shapes=("2x8",))) as running:
        await running.served()
        out = str(tmp_path / "cluster.tar.zst")
        save = ["snapshot", "--cluster", out, "--kubeconfig", str(running.kubeconfig)]
        ask = ["fit", "-f", str(one_pod(tmp_path)), "--from", out]
        said = ""
        async with asyncio.timeout(60):
            while "on 2 of 2 nodes" not in said:  # the agents publish meanwhile
                assert await asyncio.to_thread(main, save) == 0
                await asyncio.to_thread(main, ask)
                said = capsys.readouterr().out


def one_pod(folder):
    path = folder / "pod.yaml"
    path.write_text(json.dumps(pod_yaml("new", 3)))
    return path


async def test_a_saved_cluster_is_shown_in_a_browser(cluster, tmp_path):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "rte", "view", "--listen", "127.0.0.1:0",
        "--from", saved(cluster, tmp_path),
        stderr=asyncio.subprocess.PIPE, env=dict(os.environ),
    )  # fmt: skip
    assert process.stderr is not None
    async with asyncio.timeout(60):
        url = (await process.stderr.readline()).decode().split()[0]
        async with aiohttp.ClientSession() as session, session.get(f"{url}/data") as answer:
            shown = await answer.json()
        assert [node["name"] for node in shown["nodes"]] == ["a-full", "b-half"]
        assert {pod["pod"] for pod in shown["waiting"]} >= {"default/waiting", "default/large"}
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
