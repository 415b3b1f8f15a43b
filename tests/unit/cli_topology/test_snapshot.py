"""``rte snapshot``: a capture reads back as the same machine and holds no secrets."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
import yaml

from rte import cli
from rte.sysfs import document, read_machine

FIXTURES = Path(__file__).parents[3] / "fixtures" / "sysfs"
NAMES = sorted(path.name for path in FIXTURES.iterdir())


def roots(name: str) -> list[str]:
    root = FIXTURES / name
    return ["--sysfs-root", str(root / "sys"), "--procfs-root", str(root / "proc")]


def unpack(archive: Path, out: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(out, filter="fully_trusted")


def kubelet_dir(root: Path) -> Path:
    state = root / "kubelet"
    (state / "device-plugins").mkdir(parents=True)
    (state / "pki").mkdir()
    (state / "pki/kubelet.key").write_text("PRIVATE KEY")
    (state / "kubeconfig").write_text("token: TOPSECRET")
    (state / "cpu_manager_state").write_text('{"policyName":"none","defaultCpuSet":"0-63"}')
    (state / "device-plugins/kubelet_internal_checkpoint").write_text(
        json.dumps(
            {
                "Data": {
                    "PodDeviceEntries": [
                        {
                            "PodUID": "u",
                            "ContainerName": "c",
                            "ResourceName": "v.d/gpu",
                            "DeviceIDs": {"0": ["g0"]},
                            "AllocResp": "VE9QU0VDUkVU",
                        }
                    ],
                    "RegisteredDevices": {"v.d/gpu": ["g0"]},
                },
                "Checksum": 1,
            }
        )
    )
    (state / "config.yaml").write_text(
        "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n"
        "cpuManagerPolicy: static\nstaticPodURLHeader: {Authorization: [TOPSECRET]}\n"
        "mergeDefaultEvictionSettings: true\ntlsPrivateKeyFile: /TOPSECRET\n"
    )
    return state


@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot_reads_back_as_the_same_machine(name: str, tmp_path: Path) -> None:
    assert cli.main(["snapshot", str(tmp_path / "out.tar"), *roots(name)]) == 0
    unpack(tmp_path / "out.tar", tmp_path / "out")
    back = read_machine(tmp_path / "out/sys", tmp_path / "out/proc")
    wanted = read_machine(FIXTURES / name / "sys", FIXTURES / name / "proc")
    assert back == wanted
    assert back.warnings == wanted.warnings
    expected = json.loads((tmp_path / "out/expected.json").read_text())
    assert expected.pop("about")
    assert expected == document.build_document(wanted)


def test_this_machine_reads_back_the_same(tmp_path: Path) -> None:
    archive = tmp_path / "out.tar"
    assert cli.main(["snapshot", str(archive), "--sysfs-root", "/sys"]) == 0
    unpack(archive, tmp_path / "out")
    back = read_machine(tmp_path / "out/sys", tmp_path / "out/proc")
    wanted = read_machine(Path("/sys"), Path("/proc"))
    assert (back.cpus, back.zones, back.pci) == (wanted.cpus, wanted.zones, wanted.pci)


def test_the_same_machine_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.tar", "b.tar"):
        assert cli.main(["snapshot", str(tmp_path / name), *roots("32-2s-gpus")]) == 0
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


def test_kubelet_files_are_captured_without_secrets(tmp_path: Path) -> None:
    state = kubelet_dir(tmp_path)
    archive = tmp_path / "out.tar"
    flags = ["--kubelet-state-dir", str(state)]
    assert cli.main(["snapshot", str(archive), *roots("64-2s"), *flags]) == 0
    raw = archive.read_bytes()
    for secret in (b"TOPSECRET", b"VE9QU0VDUkVU", b"PRIVATE KEY"):
        assert secret not in raw
    unpack(archive, tmp_path / "out")
    kept = sorted(
        str(path.relative_to(tmp_path / "out/kubelet"))
        for path in (tmp_path / "out/kubelet").rglob("*")
        if path.is_file()
    )
    assert kept == [
        "config.yaml",
        "cpu_manager_state",
        "device-plugins/kubelet_internal_checkpoint",
    ]
    config = yaml.safe_load((tmp_path / "out/kubelet/config.yaml").read_text())
    assert config["cpuManagerPolicy"] == "static"
    assert config["mergeDefaultEvictionSettings"] is True
    assert len(config) == 4, "apiVersion and kind, and what admission depends on"
    checkpoint = json.loads((tmp_path / "out/kubelet" / kept[2]).read_text())
    assert checkpoint["Data"]["PodDeviceEntries"][0]["DeviceIDs"] == {"0": ["g0"]}


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--kubelet-state-dir", "/nowhere"], "/nowhere"),
        (["--kubelet-config-file", "/nowhere"], "/nowhere"),
        (["--podresources-socket", "unix:///nowhere.sock"], "/nowhere.sock"),
        (["--podresources-socket", "tcp://x"], "tcp://x"),
    ],
)
def test_a_source_that_was_asked_for_and_is_not_there_gives_one_line(
    flags: list[str], word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.tar"
    assert cli.main(["snapshot", str(out), *roots("4-desktop-no-smt"), *flags]) in {1, 2}
    message = capsys.readouterr().err
    assert word in message
    assert message.count("\n") == 1
    assert not out.exists()


def test_an_archive_that_cannot_be_written_gives_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "none" / "out.tar"
    assert cli.main(["snapshot", str(out), *roots("4-desktop-no-smt")]) == 1
    message = capsys.readouterr().err
    assert str(out) in message
    assert message.count("\n") == 1


def test_a_damaged_checkpoint_is_not_taken_along(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = kubelet_dir(tmp_path)
    (state / "device-plugins/kubelet_internal_checkpoint").write_text('{"AllocResp": "TOP')
    out = tmp_path / "out.tar"
    flags = ["--kubelet-state-dir", str(state)]
    assert cli.main(["snapshot", str(out), *roots("4-desktop-no-smt"), *flags]) == 1
    assert "kubelet_internal_checkpoint" in capsys.readouterr().err
    assert not out.exists()


def test_standard_output_gets_the_same_archive(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    out = tmp_path / "out.tar"
    assert cli.main(["snapshot", str(out), *roots("64-2s")]) == 0
    capfdbinary.readouterr()
    assert cli.main(["snapshot", "-", *roots("64-2s")]) == 0
    captured = capfdbinary.readouterr()
    assert captured.out == out.read_bytes()
    assert captured.err.startswith(b"-: ")


def test_the_note_says_what_a_capture_reveals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["snapshot", str(tmp_path / "a.tar"), *roots("64-2s")]) == 0
    assert "--redact" in capsys.readouterr().err
    assert cli.main(["snapshot", str(tmp_path / "b.tar"), "--redact", *roots("64-2s")]) == 0
    assert "--redact" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("suffix", "magic"),
    [("tar.gz", b"\x1f\x8b"), ("tgz", b"\x1f\x8b"), ("tar.xz", b"\xfd7z"), ("tar.bz2", b"BZh")],
)
def test_a_name_decides_the_compression(suffix: str, magic: bytes, tmp_path: Path) -> None:
    archives = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    for archive in archives:
        assert cli.main(["snapshot", str(archive), *roots("64-2s")]) == 0
    first, second = (archive.read_bytes() for archive in archives)
    assert first.startswith(magic)
    assert first == second


def test_a_compression_that_is_not_known_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["snapshot", str(tmp_path / "a.tar.zst"), *roots("64-2s")]) == 2
    assert ".tar.gz" in capsys.readouterr().err


def test_settings_come_from_the_environment_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.tar"
    monkeypatch.setenv("RTE_SYSFS_ROOT", str(FIXTURES / "64-2s/sys"))
    monkeypatch.setenv("RTE_PROCFS_ROOT", str(FIXTURES / "64-2s/proc"))
    monkeypatch.setenv("RTE_KUBELET_STATE_DIR", str(kubelet_dir(tmp_path)))
    assert cli.main(["snapshot", str(out)]) == 0
    with tarfile.open(out) as archive:
        assert "kubelet/cpu_manager_state" in archive.getnames()
