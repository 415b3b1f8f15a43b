"""``python -m tools.release``: one commit, one set of bytes; each part holds what it has to.

Without the images, which tests/cluster/test_release.py makes and installs. In CI, whose environment
has what a release is made with.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

import rte
from tests.documents import blocks

#: One process makes them.
pytestmark = pytest.mark.xdist_group("release")

ROOT = Path(__file__).parents[1]
VERSION = rte.__version__
CRD = "rte/crds/noderesourcetopologies.yaml"
WHEEL = f"rte_numa-{VERSION}-py3-none-any.whl"


def release(out: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.release", out, "--without-images", *words]
    return subprocess.run(
        [str(word) for word in command], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "id"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, key: Path) -> Path:
    out = tmp_path_factory.mktemp("release") / "first"
    done = release(out, "--key", key)
    assert done.returncode == 0, done.stderr
    return out


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_same_commit_gives_the_same_bytes(made: Path, key: Path, tmp_path: Path) -> None:
    done = release(tmp_path / "again", "--key", key)
    assert done.returncode == 0, done.stderr
    first, again = bytes_of(made), bytes_of(tmp_path / "again")
    assert [name for name in first if again.get(name) != first[name]] == []
    assert first.keys() == again.keys()


def test_it_has_every_part(made: Path) -> None:
    assert {path.name for path in made.iterdir()} == {
        WHEEL, f"rte_numa-{VERSION}.tar.gz", f"rte-numa-{VERSION}.cdx.json",
        f"rte-numa-{VERSION}.spdx.json", f"rte-{VERSION}.tgz", f"rte-chart-{VERSION}.oci.tar",
        f"rte-manifests-{VERSION}.tar.gz",
        "kubectl-rte.tar.gz", "rte.yaml", "RELEASE-NOTES.md", "provenance.intoto.json",
        "SHA256SUMS", "SHA256SUMS.sig",
    }  # fmt: skip


def test_the_wheel_is_called_what_it_is_installed_by_and_has_what_runs(made: Path) -> None:
    with zipfile.ZipFile(made / WHEEL) as wheel:
        names = set(wheel.namelist())
        told = wheel.read(f"rte_numa-{VERSION}.dist-info/METADATA").decode()
        commands = wheel.read(f"rte_numa-{VERSION}.dist-info/entry_points.txt").decode()
    assert {name.split("/")[0] for name in names} == {"rte", f"rte_numa-{VERSION}.dist-info"}
    assert {"rte/py.typed", "rte/sim/noderesourcetopologies.yaml"} <= names
    assert "\nName: rte-numa\n" in told
    assert {"scheduler", "demo"} <= set(re.findall("(?m)^Provides-Extra: (.*)$", told))
    programs = re.findall(r"(?m)^(rte|kubectl-rte) = rte\.__main__:main$", commands)
    assert programs == ["kubectl-rte", "rte"]


def test_checksums_are_those_of_the_files_and_the_signature_is_the_keys(
    made: Path, key: Path, tmp_path: Path
) -> None:
    subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=made, check=True
    )
    listed = {line.split()[1] for line in (made / "SHA256SUMS").read_text().splitlines()}
    assert listed == {path.name for path in made.iterdir()} - {"SHA256SUMS", "SHA256SUMS.sig"}
    signers = tmp_path / "signers"
    signers.write_text(f"release {Path(f'{key}.pub').read_text()}")
    verify = [
        "ssh-keygen", "-Y", "verify", "-f", signers, "-I", "release", "-n", "rte-release",
        "-s", made / "SHA256SUMS.sig",
    ]  # fmt: skip
    content = (made / "SHA256SUMS").read_bytes()
    assert subprocess.run(verify, input=content, capture_output=True, check=False).returncode == 0
    other = subprocess.run(verify, input=content + b"x", capture_output=True, check=False)
    assert other.returncode != 0


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/start/release.md"])
def test_the_commands_of_the_documentation_tell_a_file_that_was_changed(
    made: Path, key: Path, tmp_path: Path, page: str
) -> None:
    (commands,) = (text for text in blocks(page, "sh") if text.startswith("ssh-keygen"))
    folder = tmp_path / "got"
    shutil.copytree(made, folder)
    (folder / "signers").write_text(f"release {Path(f'{key}.pub').read_text()}")

    def verify() -> tuple[int, list[str]]:
        done = subprocess.run(
            ["sh", "-ec", commands], cwd=folder, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout.splitlines()

    status, told = verify()
    assert status == 0
    assert told[0].startswith('Good "rte-release" signature for release')
    assert len(told) == 1

    wheel = folder / WHEEL
    wheel.write_bytes(wheel.read_bytes() + b"x")
    status, told = verify()
    assert status != 0
    assert told[1:] == [f"{WHEEL}: FAILED"]

    # Whoever changes a file and its checksum has not the key.
    sums = folder / "SHA256SUMS"
    changed = hashlib.sha256(wheel.read_bytes()).hexdigest()
    sums.write_text(re.sub(rf"(?m)^\S+(?=  {WHEEL}$)", changed, sums.read_text()))
    status, told = verify()
    assert status != 0
    assert told == ["Could not verify signature."]


def test_the_statement_tells_the_commit_and_every_file(made: Path) -> None:
    told = json.loads((made / "provenance.intoto.json").read_text())
    assert told["_type"] == "https://in-toto.io/Statement/v1"
    subjects = {each["name"]: each["digest"]["sha256"] for each in told["subject"]}
    assert subjects == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in made.iterdir()
        if path.name not in ("provenance.intoto.json", "SHA256SUMS", "SHA256SUMS.sig")
    }
    source = told["predicate"]["buildDefinition"]["resolvedDependencies"][0]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, check=True)
    assert source["digest"]["gitCommit"] == head.stdout.decode().strip()


def test_the_bill_of_materials_has_the_lock_with_hashes_licences_and_who_needs_whom(
    made: Path,
) -> None:
    told = json.loads((made / f"rte-numa-{VERSION}.cdx.json").read_text())
    components = {each["name"]: each for each in told["components"]}
    lock = dict(re.findall(r"(?m)^([\w.-]+)==(\S+)", (ROOT / "requirements.txt").read_text()))
    assert {name: each["version"] for name, each in components.items()} == lock
    assert all(each["hashes"] for each in components.values())
    unlicensed = {name for name, each in components.items() if not each.get("licenses")}
    assert unlicensed == {
        name for name in unlicensed if not metadata.metadata(name).get("License-Expression")
    }
    assert len(unlicensed) <= 3
    needs = {each["ref"]: set(each["dependsOn"]) for each in told["dependencies"]}
    root = told["metadata"]["component"]["bom-ref"]
    assert components["numpy"]["purl"] in needs[root]
    assert components["multidict"]["purl"] in needs[components["aiohttp"]["purl"]]
    reached, look = set(), [root]
    while look:
        ref = look.pop()
        if ref not in reached:
            reached.add(ref)
            look += needs[ref]
    assert reached == needs.keys()  # nothing is in it that nobody needs


def test_spdx_tells_the_same(made: Path) -> None:
    cyclonedx = json.loads((made / f"rte-numa-{VERSION}.cdx.json").read_text())
    told = json.loads((made / f"rte-numa-{VERSION}.spdx.json").read_text())
    assert told["spdxVersion"] == "SPDX-2.3"
    ids = [each["SPDXID"] for each in told["packages"]]
    assert len(set(ids)) == len(ids) == len(cyclonedx["components"]) + 1
    asked = [each for each in told["relationships"] if each["relationshipType"] == "DEPENDS_ON"]
    assert len(asked) == sum(len(each["dependsOn"]) for each in cyclonedx["dependencies"])
    assert {each["spdxElementId"] for each in asked} <= set(ids)


def test_the_manifest_for_krew_is_about_its_archive(made: Path) -> None:
    archive = made / "kubectl-rte.tar.gz"
    told = yaml.safe_load((made / "rte.yaml").read_text())
    (platform,) = told["spec"]["platforms"]
    assert told["spec"]["version"] == f"v{VERSION}"
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert platform["uri"].endswith("/kubectl-rte.tar.gz")
    with tarfile.open(archive) as held:
        assert {each.name: each.mode for each in held} == {
            "LICENSE": 0o644, "kubectl-rte": 0o755, WHEEL: 0o644,
        }  # fmt: skip


def test_chart_and_manifests_are_whole_without_links(made: Path) -> None:
    with tarfile.open(made / f"rte-{VERSION}.tgz") as chart:
        assert all(each.isfile() for each in chart)
        crd = chart.extractfile(CRD)
        assert crd is not None
        served: Any = yaml.safe_load(crd.read())
    assert served["kind"] == "CustomResourceDefinition"
    with tarfile.open(made / f"rte-manifests-{VERSION}.tar.gz") as manifests:
        names = set(manifests.getnames())
    assert f"rte-manifests-{VERSION}/default/kustomization.yaml" in names
    assert not [name for name in names if "/chart/" in name]


def test_what_artifact_hub_reads_of_the_chart_is_true(made: Path) -> None:
    """Its annotations are texts, some of them lists in YAML (artifacthub.io/docs, annotations)."""
    with tarfile.open(made / f"rte-{VERSION}.tgz") as chart:
        file, crds = chart.extractfile("rte/Chart.yaml"), chart.extractfile(CRD)
        assert file is not None
        assert crds is not None
        told, crd = yaml.safe_load(file.read()), yaml.safe_load(crds.read())
    notes = told["annotations"]
    assert all(isinstance(value, str) for value in notes.values())
    (listed,) = yaml.safe_load(notes["artifacthub.io/crds"])
    assert (listed["name"], listed["kind"]) == (
        crd["metadata"]["name"], crd["spec"]["names"]["kind"],
    )  # fmt: skip
    assert listed["version"] in {each["name"] for each in crd["spec"]["versions"]}
    named = {each["image"] for each in yaml.safe_load(notes["artifacthub.io/images"])}
    assert named == {f"rte-agent:{VERSION}", f"rte-scheduler:{VERSION}"}


def test_the_notes_are_the_changelogs(made: Path) -> None:
    notes = (made / "RELEASE-NOTES.md").read_text()
    assert notes.startswith(f"# rte {VERSION}\n")
    assert "### Upgrade notes" in notes
    assert "\n## " not in notes


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--commit", "no-such-commit"], "no-such-commit"),
        (["--key", "/nonexistent/key"], "no key at /nonexistent/key: ssh-keygen"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_made(
    tmp_path: Path, words: list[str], told: str
) -> None:
    done = release(tmp_path / "out", *words)
    assert done.returncode == 1
    assert done.stderr.startswith("release: ")
    assert told in done.stderr
    assert not list((tmp_path / "out").iterdir())


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    done = release(tmp_path)
    assert (done.returncode, done.stderr) == (
        1, f"release: {tmp_path} is not empty: give a new folder\n",
    )  # fmt: skip
