"""The microarchitecture of the CPUs by the name that compilers have for it.

Source: Linux ``arch/x86/include/asm/intel-family.h``, ``arch/x86/kernel/cpu/amd.c`` and
``arch/arm64/include/asm/cputype.h``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rte.sysfs.procfs import Identity

#: Intel, family 6: model -> name.
_INTEL = {
    **dict.fromkeys((0x3C, 0x3F, 0x45, 0x46), "haswell"),
    **dict.fromkeys((0x3D, 0x47, 0x4F, 0x56), "broadwell"),
    **dict.fromkeys((0x4E, 0x5E), "skylake"),
    **dict.fromkeys((0x6A, 0x6C, 0x7D, 0x7E), "icelake"),
    0x8F: "sapphirerapids",
    0xCF: "emeraldrapids",
    **dict.fromkeys((0xAD, 0xAE), "graniterapids"),
    0xAF: "sierraforest",
}
#: Three generations of servers share one model; the stepping from which each begins.
_INTEL_SERVER = 0x55
_STEPPINGS = ((10, "cooperlake"), (5, "cascadelake"), (0, "skylake"))
#: AMD: family -> (first model, last model, name).
_AMD = {
    0x17: ((0x00, 0x0F, "naples"), (0x30, 0x3F, "rome")),
    0x19: ((0x00, 0x0F, "milan"), (0x10, 0x1F, "genoa"), (0xA0, 0xAF, "bergamo")),
    0x1A: ((0x00, 0x1F, "turin"),),
}
#: arm64: part number of Arm's own cores.
_ARM = {
    "0xd0c": "neoversen1",
    "0xd49": "neoversen2",
    "0xd40": "neoversev1",
    "0xd4f": "neoversev2",
}


def name_of(identity: Identity) -> str:
    """The name, ``""`` where it is not known."""
    if identity.vendor == "GenuineIntel" and identity.family == 6:
        if identity.number == _INTEL_SERVER:
            return next((name for least, name in _STEPPINGS if identity.stepping >= least), "")
        return _INTEL.get(identity.number, "")
    if identity.vendor == "AuthenticAMD":
        spans = _AMD.get(identity.family, ())
        return next((name for low, high, name in spans if low <= identity.number <= high), "")
    if identity.vendor == "0x41":
        return _ARM.get(identity.part, "")
    return ""
