"""What processing groups need of the hardware: microarchitectures, GPUs and their health."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rte.model.machine import CPUBasics
from rte.sysfs import architecture, gpus
from rte.sysfs.procfs import Identity
from rte.sysfs.tree import Tree

if TYPE_CHECKING:
    from pathlib import Path

INTEL, AMD = "GenuineIntel", "AuthenticAMD"


@pytest.mark.parametrize(
    ("vendor", "family", "model", "stepping", "name"),
    [
        (INTEL, 6, 0x55, 4, "skylake"),
        (INTEL, 6, 0x55, 7, "cascadelake"),
        (INTEL, 6, 0x55, 11, "cooperlake"),
        (INTEL, 6, 0x55, -1, ""),
        (INTEL, 6, 0x6A, 6, "icelake"),
        (INTEL, 15, 0x6A, 6, ""),
        (AMD, 0x17, 0x31, 0, "rome"),
        (AMD, 0x19, 0x01, 1, "milan"),
        (AMD, 0x19, 0x11, 1, "genoa"),
        (AMD, 0x1B, 0x11, 1, ""),
    ],
)
def test_a_microarchitecture_goes_by_its_compilers_name(
    vendor: str, family: int, model: int, stepping: int, name: str
) -> None:
    told = Identity(
        vendor=vendor,
        model="",
        sockets=1,
        basics=CPUBasics(),
        family=family,
        number=model,
        stepping=stepping,
    )

    assert architecture.name_of(told) == name


def test_an_arm_core_goes_by_its_part() -> None:
    told = Identity(vendor="0x41", model="0xd0c", sockets=1, basics=CPUBasics(), part="0xd0c")

    assert architecture.name_of(told) == "neoversen1"


def nvidia(tmp_path: Path, text: str) -> dict[str, str]:
    place = tmp_path / "proc" / gpus.INFORMATION / "0000:13:00.0"
    place.mkdir(parents=True)
    (place / "information").write_text(text)
    (tmp_path / "sys").mkdir()
    return gpus.read_facts(
        Tree(tmp_path / "sys", "/sys"), Tree(tmp_path / "proc", "/proc"), "x/0000:13:00.0", "nvidia"
    )


def test_a_uuid_that_is_not_known_yet_is_none(tmp_path: Path) -> None:
    text = "Model: \t\t Tesla T4\nGPU UUID: \t GPU-????????-????-????-????-????????????\n"

    assert nvidia(tmp_path, text) == {"model": "Tesla T4"}


def test_a_gpu_that_its_driver_excludes_is_not_well(tmp_path: Path) -> None:
    assert nvidia(tmp_path, "GPU Excluded:\t Yes\n") == {"health": "excluded"}


@pytest.mark.parametrize("text", ["", "\0\0", "Model", "::::", "Model: \x1b[31m\n"])
def test_nonsense_tells_nothing(tmp_path: Path, text: str) -> None:
    assert nvidia(tmp_path, text) == {}
