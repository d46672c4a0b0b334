"""What was measured is kept for this boot, this user and these walls, under a key of all that it depends on."""

import os
import platform
import resource
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_kernel import ProcessBackend, ProcessConfig, SandboxPolicy
from sandbox_kernel.backends.checks import VARIABLES, VARIABLES_LIKE
from sandbox_kernel.backends.probes import measured_cache
from sandbox_kernel.backends.probes.canaries import Measurement
from sandbox_kernel.backends.probes.measured_cache import SETTINGS, Measured, fingerprint, recall, remember
from sandbox_kernel.jail.accounting.cgroups import Hierarchies
from tests.jail.accounting.control_groups import Host, needs_v2, new_group

LINE = Measurement(area="files", name="read", enforced=None, mechanism="walls", evidence="✓ ENOENT", absent=True)
MEASURED = Measured((LINE, replace(LINE, name="write", enforced=False)), 12.5)
KEY = "a" * 64
ASK = (
    "from sandbox_kernel import ProcessBackend, ProcessConfig\n"
    "from sandbox_kernel.backends.probes.measured_cache import fingerprint\n"
    "answer = fingerprint(ProcessBackend(ProcessConfig(pool_size=0)))\n"
)


def entry() -> Path:
    return Path(measured_cache.cache_folder(), KEY)


def test_what_is_remembered_is_recalled_and_private() -> None:
    remember("", MEASURED)
    assert recall(KEY) is recall("") is None, "nothing is kept without a key"
    remember(KEY, MEASURED)
    assert recall(KEY) == MEASURED
    assert stat.S_IMODE(entry().parent.stat().st_mode) == 0o700
    assert os.listdir(entry().parent) == [KEY]


def test_a_folder_that_others_may_change_is_neither_read_nor_written() -> None:
    remember(KEY, MEASURED)
    entry().parent.chmod(0o777)
    remember("b" * 64, MEASURED)
    assert recall(KEY) is None
    assert os.listdir(entry().parent) == [KEY]


@pytest.mark.parametrize("cut", [0, 1, 64, 100, -1])
def test_a_damaged_entry_counts_as_none(cut: int) -> None:
    remember(KEY, MEASURED)
    entry().write_bytes(entry().read_bytes()[:cut])
    assert recall(KEY) is None


def test_old_entries_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_cache, "MAX_ENTRIES", 2)
    for number in range(4):
        key = f"{number}" * 64
        remember(key, MEASURED)
        os.utime(entry().with_name(key), (number, number))
    assert sorted(os.listdir(entry().parent)) == ["2" * 64, "3" * 64]


@pytest.fixture
def backend() -> ProcessBackend:
    return ProcessBackend(ProcessConfig(pool_size=0))


def test_two_processes_in_the_same_place_have_the_same_key() -> None:
    command = [sys.executable, "-c", f"{ASK}print(answer)"]
    first, second = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert len(first.strip()) == 64
    assert first == second


def test_policy_configuration_and_walls_are_in_the_key(backend: ProcessBackend) -> None:
    other = ProcessBackend(ProcessConfig(pool_size=0))
    assert other.enforcer is not None
    keys = [fingerprint(backend), fingerprint(other)]
    other.enforcer = replace(other.enforcer, version="another")
    keys += [
        fingerprint(other),
        fingerprint(ProcessBackend(ProcessConfig(pool_size=0), policy=SandboxPolicy())),
        fingerprint(ProcessBackend(ProcessConfig(pool_size=0), policy=SandboxPolicy(network=True))),
        fingerprint(ProcessBackend(ProcessConfig(pool_size=0, check_types=True))),
        fingerprint(ProcessBackend(ProcessConfig(pool_size=0), enforcer=None)),
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 6


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        (SETTINGS[0], "", "changed"),
        (SETTINGS[-1], "", "changed"),
        ("/proc/sys/kernel/random/boot_id", "-", "changed"),
        ("/proc/sys/user/max_user_namespaces", "", "changed"),
        ("/proc/self/status", "CapEff:", "CapEff: changed"),
        ("/proc/self/status", "Seccomp:", "Seccomp: changed"),
        ("/proc/self/mountinfo", " / / ", " / / noexec,"),
    ],
)
def test_what_the_kernel_says_of_itself_and_of_the_process_is_in_the_key(
    path: str, old: str, new: str, backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real = fingerprint(backend), measured_cache.read_fact
    monkeypatch.setattr(
        measured_cache, "read_fact", lambda asked: real(asked).replace(old, new) if asked == path else real(asked)
    )
    assert fingerprint(backend) != before


@pytest.mark.parametrize(
    ("target", "value"),
    [
        ("os.getresuid", lambda: (0, 4711, 0)),
        ("os.getresgid", lambda: (0, 4711, 0)),
        ("os.getgroups", lambda: [4711]),
        ("measured_cache.read_link", lambda path: "mnt:[1]"),
        ("platform.uname", lambda: platform.uname_result("Linux", "other", "9.9", "#1", "x86_64")),
        ("measured_cache.landlock_abi", lambda: 99),
        ("measured_cache.code_digest", lambda package: "changed"),
        ("measured_cache.groups_at_start", lambda: "0::/somewhere/else"),
        ("measured_cache.find_hierarchies", lambda: Hierarchies(9, "/a/b", None, None)),
        ("sys.executable", "/other/python"),
    ],
)
def test_who_asks_and_with_what_is_in_the_key(
    target: str, value: object, backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fingerprint(backend)
    prefix = "sandbox_kernel.backends.probes." if target.startswith("measured_cache.") else ""
    with monkeypatch.context() as patch:
        patch.setattr(prefix + target, value)
        assert fingerprint(backend) != before


def test_where_groups_are_and_which_they_are_is_in_the_key_and_the_name_of_a_place_is_not(
    backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def key(found: Hierarchies | None, missing: str | None = None) -> str:
        monkeypatch.setattr(measured_cache, "find_hierarchies", lambda: found)
        monkeypatch.setattr(measured_cache, "shortfall", lambda: missing)
        return fingerprint(backend)

    assert key(Hierarchies(2, "/a/1", "/a/1", "/a/1")) == key(Hierarchies(2, "/a/2", "/a/2", "/a/2"))
    different = [
        key(Hierarchies(2, "/a/1", "/a/1", "/a/1")),
        key(Hierarchies(1, "/a/1", "/a/1", "/a/1")),
        key(Hierarchies(2, "/b/1", "/b/1", "/b/1")),
        key(Hierarchies(2, "/a/1", None, "/a/1")),
        key(Hierarchies(2, "/a/1", "/a/1", "/a/1", ("outside",))),
        key(None, "one"),
        key(None, "another"),
    ]
    assert len(set(different)) == len(different)


def test_variables_and_limits_that_decide_what_is_used_are_in_the_key(
    backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [fingerprint(backend)]
    for name in (*VARIABLES, "SANDBOX_KERNEL_ANYTHING", "LD_PRELOAD", "PYTHONPATH"):
        with monkeypatch.context() as patch:
            patch.setenv(name, os.environ.get(name, "") + ":/changed")
            keys.append(fingerprint(backend))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        keys.append(fingerprint(backend))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(set(keys)) == len(keys)
    assert fingerprint(backend) == keys[0]


def test_where_boots_cannot_be_told_apart_there_is_no_key(
    backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_cache, "read_fact", lambda path: "")
    assert fingerprint(backend) == ""


def test_code_and_data_of_ours_are_in_the_key_however_deep(tmp_path: Path) -> None:
    for name in ("jail/deep/inner.py", "guest/gate/gate.py", "jail/table.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("0")
    code_digest = measured_cache.code_digest.__wrapped__  # without what it remembers
    digests = [code_digest(tmp_path)]
    (tmp_path / "jail" / "__pycache__").mkdir()
    (tmp_path / "jail" / "__pycache__" / "inner.pyc").write_text("")
    assert code_digest(tmp_path) == digests[0]
    (tmp_path / "jail" / "deep" / "inner.py").write_text("changed entirely")
    digests.append(code_digest(tmp_path))
    (tmp_path / "jail" / "table.json").write_text("[1]")
    digests.append(code_digest(tmp_path))
    os.utime(tmp_path / "guest" / "gate" / "gate.py", (1, 1))
    digests.append(code_digest(tmp_path))
    (tmp_path / "guest" / "gate" / "gate.py").unlink()
    digests.append(code_digest(tmp_path))
    assert len(set(digests)) == 5


def test_every_variable_that_our_code_asks_for_by_name_below_the_facade_is_in_the_key() -> None:
    package = Path(measured_cache.__file__).parents[2]
    asked = set()
    for room in ("jail", "backends", "languages", "policy"):
        for path in (package / room).rglob("*.py"):
            for piece in path.read_text().split("os.environ.get(")[1:]:
                argument = piece.split(")")[0].split(",")[0].strip()
                if argument.startswith('"'):
                    asked.add(argument.strip('"'))
    missing = {name for name in asked if name not in VARIABLES and not name.startswith(VARIABLES_LIKE)}
    assert asked and not missing


@needs_v2
@pytest.mark.slow
def test_a_process_in_another_group_does_not_get_what_was_measured_in_the_first() -> None:
    with new_group() as one, new_group() as other:
        keys = []
        for group in (one, other, one):
            host = Host(group)
            try:
                keys.append(host.ask(ASK))
            finally:
                host.end()
    assert keys[0] == keys[2] != keys[1]
