"""Which accelerators a policy allows, and what a sandbox needs of them: device files, and the driver's libraries."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Sequence

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.limits import quoted
from sandbox_kernel.util.values import dataclass

#: Device files that every NVIDIA program opens besides the card's own.
_NVIDIA_SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
#: The one that every program for AMD cards opens.
_AMD_SHARED = "kfd"
_NVIDIA, _AMD = r"nvidia(\d+)\Z", r"renderD(\d+)\Z"
#: Libraries of a driver, by which its folders are found in the loader's cache.
_DRIVERS = r"\s(?:libcuda|libnvidia-ml|libamdhip64|libhsa-runtime64)\.so\S* .*=> (\S+)"
#: Folders that every sandbox shows.
_SYSTEM = ("/usr/", "/lib/", "/lib64/", "/bin/", "/sbin/")
#: No machine has more cards; a larger number is a typing mistake.
_MOST_CARDS = 64
_FORM = "'all' or a list of card numbers, like [0, 1]"


@dataclass(frozen=True)
class GpuRule:
    """The cards that a program may use, by number; None means all that the host has."""

    cards: tuple[int, ...] | None = None

    def __str__(self) -> str:
        return "all" if self.cards is None else ",".join(map(str, self.cards))


@dataclass(frozen=True)
class FoundGpu:
    """What to show to a sandbox: device files, and folders of the driver outside of the system's own."""

    devices: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


def gpu_rule(devices: object) -> GpuRule:
    """Return the rule for ``allow_gpu``. Raises ``PolicyViolation`` for anything but "all" or numbers."""
    if devices == "all":
        return GpuRule()
    if not isinstance(devices, Sequence) or isinstance(devices, str | bytes) or not devices:
        raise PolicyViolation(f"devices of a GPU must be {_FORM}, got {quoted(devices)}")
    for card in devices:
        if isinstance(card, bool) or not isinstance(card, int) or not 0 <= card < _MOST_CARDS:
            raise PolicyViolation(f"the card {quoted(card)} is no number from 0 to {_MOST_CARDS - 1}; give {_FORM}")
    return GpuRule(tuple(dict.fromkeys(sorted(devices))))


def parse_gpu(text: str) -> GpuRule:
    """Return the rule for the value of ``--gpu``: ``all`` or numbers with commas. Raises ``PolicyViolation``."""
    words = text.split(",")
    if text != "all" and not all(word.isascii() and word.isdigit() for word in words):
        raise PolicyViolation(f"{quoted(text)} names no cards; give all, or numbers like 0 or 0,1")
    return gpu_rule(text if text == "all" else [int(word) for word in words])


def find_gpu(rule: GpuRule | None, dev: str = "/dev") -> FoundGpu:
    """Return what a sandbox under this rule is shown here. Raises ``PolicyViolation`` if the host has no such card."""
    if rule is None:
        return FoundGpu()
    nvidia = {int(match[1]): match[0] for name in _names(dev) if (match := re.match(_NVIDIA, name))}
    amd = sorted((int(match[1]), match[0]) for name in _names(f"{dev}/dri") if (match := re.match(_AMD, name)))
    usable = os.path.exists(f"{dev}/{_AMD_SHARED}")
    cards = nvidia or {number: f"dri/{name}" for number, (_, name) in enumerate(amd) if usable}
    if not cards:
        raise PolicyViolation(
            f"this machine has no GPU that a sandbox can use: there is no {dev}/nvidia0, and no {dev}/kfd with "
            f"{dev}/dri/renderD128; install its driver, or run without a GPU"
        )
    asked = tuple(sorted(cards)) if rule.cards is None else rule.cards
    missing = [card for card in asked if card not in cards]
    if missing:
        has = ", ".join(map(str, sorted(cards)))
        raise PolicyViolation(f"this machine has no GPU {missing[0]}; it has: {has}; name one of these, or all")
    shared = _NVIDIA_SHARED if nvidia else (_AMD_SHARED,)
    names = [*(cards[card] for card in asked), *(name for name in shared if os.path.exists(f"{dev}/{name}"))]
    return FoundGpu(tuple(f"{dev}/{name}" for name in names), driver_folders())


def gpu_devices(dev: str = "/dev") -> tuple[str, ...]:
    """Return the device files of all cards of this host, with those that their programs share; empty without a card."""
    try:
        return find_gpu(GpuRule(), dev).devices
    except PolicyViolation:
        return ()


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


@functools.lru_cache(maxsize=1)
def driver_folders() -> tuple[str, ...]:
    """Return the folders of the driver's libraries that the loader knows and a sandbox does not show anyway."""
    try:
        listed = subprocess.run(
            ["ldconfig", "-p"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin", "LC_ALL": "C"},
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return outside_system(listed)


def outside_system(listed: str) -> tuple[str, ...]:
    """Return the folders of driver libraries outside of the system's, from the output of ``ldconfig -p``."""
    folders = dict.fromkeys(os.path.dirname(os.path.realpath(path)) for path in re.findall(_DRIVERS, listed))
    return tuple(folder for folder in folders if not f"{folder}/".startswith(_SYSTEM))
