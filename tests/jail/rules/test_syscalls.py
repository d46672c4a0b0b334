"""The table against the kernel's own headers: those installed, and those of both architectures that zig ships."""

import importlib.util
import os
import re
from pathlib import Path

import pytest

from sandbox_kernel.jail.rules.syscalls import ARCHES, LAST_REVIEWED, NAMES, number

_FOLDERS = {"x86_64": "x86-linux-any", "aarch64": "aarch64-linux-any"}


def _defined(header: Path) -> dict[str, int]:
    pairs = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)\s*$", header.read_text(), re.MULTILINE)
    return {name: int(value) for name, value in pairs}


def _zig_header(arch: str) -> Path:
    spec = importlib.util.find_spec("ziglang")
    if spec is None or spec.origin is None:
        pytest.skip("ziglang, which carries the kernel headers, is not installed")
    return Path(spec.origin).parent / "lib/libc/include" / _FOLDERS[arch] / "asm/unistd_64.h"


@pytest.mark.parametrize("arch", ARCHES)
def test_every_number_is_the_one_in_the_kernel_headers(arch: str) -> None:
    header = _defined(_zig_header(arch))
    # Calls that the kernel removed keep their number, but newer headers no longer name them.
    gone = {"nfsservctl", "lookup_dcookie"}
    for name in NAMES:
        ours = number(name, arch)
        if name in gone and name not in header:
            continue
        assert ours == header.get(name), name


@pytest.mark.parametrize("arch", ARCHES)
def test_the_review_ends_with_the_last_call_these_headers_know(arch: str) -> None:
    assert max(_defined(_zig_header(arch)).values()) <= LAST_REVIEWED


def test_numbers_agree_with_the_headers_of_this_machine() -> None:
    header = Path("/usr/include/asm-generic/unistd.h")
    if os.uname().machine != "aarch64" or not header.exists():
        pytest.skip("the generic table is that of aarch64, and its header is not here")
    known = _defined(header)
    shared = [name for name in NAMES if name in known]
    assert len(shared) > 60
    assert [name for name in shared if number(name, "aarch64") != known[name]] == []


def test_a_name_without_a_number_is_a_mistake_and_not_a_missing_call() -> None:
    with pytest.raises(KeyError):
        number("moutn", "x86_64")


def test_calls_of_the_old_architecture_are_absent_on_the_new_one() -> None:
    assert number("fork", "x86_64") == 57
    assert number("fork", "aarch64") is None
