"""A kept measurement has a key of everything that it depends on: each of these, changed, makes another key."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_kernel import ProcessBackend, ProcessConfig, SandboxPolicy
from sandbox_kernel.backends.checks import VARIABLES, VARIABLES_LIKE
from sandbox_kernel.backends.measured import measured_cache
from sandbox_kernel.backends.measured.measured_cache import SETTINGS, STATUS, code_digest, facts, fingerprint
from sandbox_kernel.jail.accounting.cgroups import Hierarchies, Shortfall
from tests.jail.accounting.control_groups import Host, needs_v2, new_group


@pytest.fixture
def backend() -> ProcessBackend:
    return ProcessBackend(ProcessConfig(pool_size=0))


def test_the_key_is_the_same_while_nothing_changes(backend: ProcessBackend) -> None:
    assert len(fingerprint(backend)) == 64
    assert fingerprint(backend) == fingerprint(ProcessBackend(ProcessConfig(pool_size=0)))


def test_another_process_in_the_same_place_has_the_same_key(backend: ProcessBackend) -> None:
    code = (
        "from sandbox_kernel import ProcessBackend, ProcessConfig\n"
        "from sandbox_kernel.backends.measured.measured_cache import fingerprint\n"
        "print(fingerprint(ProcessBackend(ProcessConfig(pool_size=0))))"
    )
    seen = {
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(seen) == 1


def test_policy_configuration_and_walls_are_in_the_key(backend: ProcessBackend) -> None:
    keys = {
        fingerprint(backend),
        fingerprint(ProcessBackend(ProcessConfig(pool_size=0), policy=SandboxPolicy())),
        fingerprint(ProcessBackend(ProcessConfig(pool_size=0), policy=SandboxPolicy(network=True))),
        fingerprint(ProcessBackend(ProcessConfig(pool_size=0, pipefail=True))),
        fingerprint(ProcessBackend(ProcessConfig(pool_size=0), enforcer=None)),
    }
    assert len(keys) == 5


def test_the_version_of_the_walls_is_in_the_key(backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint(backend)
    assert backend.enforcer is not None
    monkeypatch.setattr(backend, "enforcer", replace(backend.enforcer, version="another"))
    assert fingerprint(backend) != before


READ = (
    *SETTINGS, "/proc/sys/kernel/random/boot_id", "/proc/sys/user/max_user_namespaces",
    "/proc/sys/user/max_inotify_instances",
)  # fmt: skip


@pytest.mark.parametrize("path", READ)
def test_a_setting_of_the_kernel_is_in_the_key(
    path: str, backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real = fingerprint(backend), measured_cache.read_fact
    monkeypatch.setattr(measured_cache, "read_fact", lambda asked: "changed" if asked == path else real(asked))
    assert fingerprint(backend) != before


@pytest.mark.parametrize("line", STATUS)
def test_what_the_process_may_do_is_in_the_key(
    line: str, backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, real = fingerprint(backend), measured_cache.read_fact

    def changed(path: str) -> str:
        text = real(path)
        if path != "/proc/self/status":
            return text
        return "\n".join(f"{line}:\tchanged" if row.startswith(f"{line}:") else row for row in text.splitlines())

    monkeypatch.setattr(measured_cache, "read_fact", changed)
    assert fingerprint(backend) != before


@pytest.mark.parametrize(
    ("target", "value"),
    [
        ("os.getresuid", lambda: (0, 4711, 0)),
        ("os.getresgid", lambda: (0, 4711, 0)),
        ("os.getgroups", lambda: [4711]),
        ("platform.uname", lambda: platform.uname_result("Linux", "other", "9.9", "#1", "x86_64")),
        ("measured_cache.landlock_abi", lambda: 99),
        ("measured_cache._bubblewrap", lambda: ["/other/bwrap", 1]),
        ("measured_cache._guest_python", lambda name: ["/other/python", 1]),
        ("measured_cache._version", lambda: "99"),
        ("measured_cache._own_code", lambda: "changed"),
        ("measured_cache.groups_at_start", lambda: "0::/somewhere/else"),
        ("measured_cache.find_hierarchies", lambda: Hierarchies(9, "/a/b", None, None)),
        ("sys.executable", "/other/python"),
    ],
)
def test_who_asks_and_with_what_is_in_the_key(
    target: str, value: object, backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fingerprint(backend)
    prefix = "sandbox_kernel.backends.measured." if target.startswith("measured_cache.") else ""
    monkeypatch.setattr(prefix + target, value)
    assert fingerprint(backend) != before


def test_where_groups_are_and_which_they_are_is_in_the_key_and_the_name_of_a_place_is_not(
    backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def key(found: Hierarchies | None, missing: Shortfall | None = None) -> str:
        monkeypatch.setattr(measured_cache, "find_hierarchies", lambda: found)
        monkeypatch.setattr(measured_cache, "shortfall", lambda: missing)
        return fingerprint(backend)

    assert key(Hierarchies(2, "/a/1", "/a/1", "/a/1")) == key(Hierarchies(2, "/a/2", "/a/2", "/a/2"))
    different = [
        key(Hierarchies(2, "/a/1", "/a/1", "/a/1")),
        key(Hierarchies(1, "/a/1", "/a/1", "/a/1")),
        key(Hierarchies(2, "/b/1", "/b/1", "/b/1")),
        key(Hierarchies(2, "/a/1", None, "/a/1")),
        key(Hierarchies(1, "/a/1", "/a/1", None)),
        key(Hierarchies(2, "/a/1", "/a/1", "/a/1", ("outside",))),
        key(None, Shortfall("one", "")),
        key(None, Shortfall("another", "")),
    ]
    assert len(set(different)) == len(different)


@pytest.mark.parametrize("name", [*VARIABLES, "SANDBOX_KERNEL_ANYTHING", "LD_PRELOAD", "PYTHONPATH"])
def test_variables_that_decide_what_is_used_are_in_the_key(
    name: str, backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = fingerprint(backend)
    monkeypatch.setenv(name, os.environ.get(name, "") + ":/changed")
    assert fingerprint(backend) != before


def test_limits_of_the_host_process_are_in_the_key(backend: ProcessBackend) -> None:
    before = fingerprint(backend)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        assert fingerprint(backend) != before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert fingerprint(backend) == before


def test_namespaces_and_mounts_are_in_the_key(backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    before, real = fingerprint(backend), measured_cache.read_fact
    with monkeypatch.context() as patch:
        patch.setattr(measured_cache, "_link", lambda path: "mnt:[1]" if path.endswith("mnt") else "")
        assert fingerprint(backend) != before

    def with_noexec(path: str) -> str:
        return real(path).replace(" / / ", " / / noexec,") if path.endswith("mountinfo") else real(path)

    with monkeypatch.context() as patch:
        patch.setattr(measured_cache, "read_fact", with_noexec)
        assert fingerprint(backend) != before


def test_where_boots_cannot_be_told_apart_there_is_no_key(
    backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_cache, "read_fact", lambda path: "")
    assert fingerprint(backend) == ""


def _edit(package: Path) -> None:
    (package / "jail" / "deep" / "inner.py").write_text("changed entirely")


def _add(package: Path) -> None:
    (package / "guest" / "new.py").write_text("")


def _remove(package: Path) -> None:
    (package / "guest" / "gate" / "gate.py").unlink()


def _touch(package: Path) -> None:
    os.utime(package / "guest" / "gate" / "gate.py", (1, 1))


def _data(package: Path) -> None:
    (package / "jail" / "table.json").write_text("[1]")


@pytest.mark.parametrize("change", [_edit, _add, _remove, _touch, _data])
def test_code_and_data_of_ours_are_in_the_key_however_deep(change: Callable[[Path], None], tmp_path: Path) -> None:
    for name in ("jail/deep/inner.py", "guest/gate/gate.py", "jail/table.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("0")
    before = code_digest(tmp_path)
    (tmp_path / "jail" / "__pycache__").mkdir()
    (tmp_path / "jail" / "__pycache__" / "inner.pyc").write_text("")
    assert code_digest(tmp_path) == before
    change(tmp_path)
    assert code_digest(tmp_path) != before


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
    ask = (
        "from sandbox_kernel import ProcessBackend, ProcessConfig\n"
        "from sandbox_kernel.backends.measured.measured_cache import fingerprint, facts\n"
        "answer = fingerprint(ProcessBackend(ProcessConfig(pool_size=0)))"
    )
    with new_group() as one, new_group() as other:
        keys = []
        for group in (one, other, one):
            host = Host(group)
            try:
                keys.append(host.ask(ask))
            finally:
                host.end()
    assert keys[0] == keys[2] != keys[1]


def test_the_facts_have_names_that_a_reader_knows(backend: ProcessBackend) -> None:
    assert {"boot", "kernel", "groups", "user", "policy", "variables", "package", "settings"} <= set(facts(backend))
