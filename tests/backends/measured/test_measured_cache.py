"""What was measured is kept for this boot, this user and these walls, and believed only when it is surely ours."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_kernel.backends.measured import measured_cache
from sandbox_kernel.backends.measured.canaries import Measurement
from sandbox_kernel.backends.measured.measured_cache import Measured, cache_folder, recall, remember

LINE = Measurement(area="files", name="read", enforced=None, mechanism="walls", evidence="✓ ENOENT", absent=True)
MEASURED = Measured((LINE, replace(LINE, name="write", enforced=False)), 12.5)
KEY = "a" * 64


def entry() -> Path:
    return Path(measured_cache.cache_folder(), KEY)


def test_what_is_remembered_is_recalled_and_private() -> None:
    assert recall(KEY) is None
    remember(KEY, MEASURED)
    assert recall(KEY) == MEASURED
    assert stat.S_IMODE(entry().stat().st_mode) == 0o600
    assert stat.S_IMODE(entry().parent.stat().st_mode) == 0o700
    assert os.listdir(entry().parent) == [KEY]


def test_a_folder_that_others_may_enter_is_closed_first() -> None:
    entry().parent.mkdir(mode=0o777)
    entry().parent.chmod(0o777)
    remember(KEY, MEASURED)
    assert stat.S_IMODE(entry().parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("cut", [0, 1, 64, 65, 100, -1])
def test_a_damaged_entry_counts_as_none(cut: int) -> None:
    remember(KEY, MEASURED)
    entry().write_bytes(entry().read_bytes()[:cut])
    assert recall(KEY) is None


def test_an_entry_under_another_name_counts_as_none() -> None:
    remember(KEY, MEASURED)
    other = "b" * 64
    entry().rename(entry().with_name(other))
    assert recall(other) is None


def test_an_entry_that_others_could_write_or_that_is_a_link_counts_as_none(tmp_path: Path) -> None:
    remember(KEY, MEASURED)
    entry().chmod(0o622)
    assert recall(KEY) is None
    entry().chmod(0o600)
    entry().rename(tmp_path / "elsewhere")
    entry().symlink_to(tmp_path / "elsewhere")
    assert recall(KEY) is None


def test_a_folder_that_cannot_be_made_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_cache, "cache_folder", lambda: "/proc/nowhere/at/all")
    remember(KEY, MEASURED)
    assert recall(KEY) is None


def test_old_entries_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_cache, "MAX_ENTRIES", 2)
    for number in range(4):
        key = f"{number}" * 64
        remember(key, MEASURED)
        os.utime(entry().with_name(key), (number, number))
    assert sorted(os.listdir(entry().parent)) == ["2" * 64, "3" * 64]


def test_nothing_is_kept_without_a_key() -> None:
    remember("", MEASURED)
    assert recall("") is None


def test_the_folder_is_below_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == f"{tmp_path}/sandbox-kernel/measured"
