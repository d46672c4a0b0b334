"""The faults of the soaks hurt what belongs to the soak, and nothing else."""

import random
from pathlib import Path

import pytest

from benchmarks import soak_faults


def test_spoiling_a_cache_again_and_again_never_writes_through_a_link(tmp_path: Path) -> None:
    cache, bait, precious = tmp_path / "cache", tmp_path / "bait", tmp_path / "precious"
    cache.mkdir()
    precious.write_text("precious")
    (cache / "link").symlink_to(precious)
    dice = random.Random(1)
    for _ in range(20):
        for number in range(20):
            path = cache / str(number)
            if not path.is_symlink():
                path.write_bytes(b"content")
        soak_faults.spoil(cache, bait, dice)
        assert bait.read_bytes() == soak_faults.BAIT
    assert precious.read_text() == "precious"
    assert all((cache / str(number)).is_symlink() for number in range(20))


def test_a_bwrap_that_is_not_the_soaks_own_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "bwrap"
    theirs.touch()
    monkeypatch.setattr(soak_faults, "find_bwrap", lambda: str(theirs))
    with soak_faults.without_bwrap():
        assert theirs.exists()
    (tmp_path / soak_faults.OURS).touch()
    with soak_faults.without_bwrap():
        assert not theirs.exists()
    assert theirs.exists()
