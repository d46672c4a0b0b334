"""What another process proved since the last boot counts, and only under the same conditions."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import EnforcerFailed
from sandbox_kernel.jail import enforcer, proof_record
from sandbox_kernel.jail.enforcer import start_jail
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.jail.walls import Walls, sizes
from sandbox_kernel.limits import Limits
from tests.jail.degraded import no_landlock, run_without

FACTS = "['boot', '/usr/bin/bwrap']"


@pytest.fixture(autouse=True)
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The entry of bubblewrap in a cache folder of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    enforcer._prove.cache_clear()
    yield tmp_path / "sandbox-kernel" / "proven" / "bubblewrap"
    enforcer._prove.cache_clear()


def count_starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    started: list[str] = []
    start = enforcer._start
    monkeypatch.setattr(enforcer, "_start", lambda name: started.append(name) or start(name))
    return started


def test_walls_are_built_once_for_all_processes_of_a_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    started = count_starts(monkeypatch)
    first = enforcer.get_enforcer("bubblewrap")
    enforcer._prove.cache_clear()  # as in the next process
    assert enforcer.get_enforcer("bubblewrap") == first
    assert started == ["bubblewrap"]


def test_under_other_conditions_walls_are_built_anew(monkeypatch: pytest.MonkeyPatch, entry: Path) -> None:
    started = count_starts(monkeypatch)
    enforcer.get_enforcer("bubblewrap")
    entry.write_text(entry.read_text().replace(Path("/proc/sys/kernel/random/boot_id").read_text().strip(), "another"))
    enforcer._prove.cache_clear()
    enforcer.get_enforcer("bubblewrap")
    assert started == ["bubblewrap"] * 2


def test_behind_a_filter_nothing_is_remembered_or_believed() -> None:
    asked = "from sandbox_kernel.jail.proof_record import proof_facts; print(proof_facts([]))"
    assert run_without(asked, no_landlock()).stdout == "None\n"
    assert proof_record.proof_facts([]) is not None


def test_an_entry_that_is_damaged_or_not_ours_does_not_count(entry: Path) -> None:
    proof_record.remember_proof("bubblewrap", FACTS, "1.0")
    assert proof_record.recall_proof("bubblewrap", FACTS) == "1.0"
    os.chmod(entry, 0o644)
    assert proof_record.recall_proof("bubblewrap", FACTS) is None
    os.chmod(entry, 0o600)
    for content in ("", "1.0", f"1.0\n{FACTS} ", FACTS):
        entry.write_text(content)
        assert proof_record.recall_proof("bubblewrap", FACTS) is None
    entry.unlink()
    entry.symlink_to("/dev/zero")
    assert proof_record.recall_proof("bubblewrap", FACTS) is None


def test_walls_that_do_not_come_up_take_the_entry_away(entry: Path) -> None:
    enforcer.get_enforcer("bubblewrap")
    assert entry.exists()
    python = find_python("python3")
    walls = Walls("/no/such/python", python.runtime, (), *sizes(Limits(), 256), preload=(), enforcer="bubblewrap")
    jail = start_jail(walls)
    with pytest.raises(EnforcerFailed):
        jail.wait_ready()
    assert not entry.exists()
