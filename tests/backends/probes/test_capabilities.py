"""What each tier claims on this host: measured, carried by evidence, and never more than it holds."""

import functools
import os

import pytest

from sandbox_kernel import (
    BackendCapabilities,
    BackendUnavailable,
    Language,
    PolicyViolation,
    ProcessBackend,
    ProcessConfig,
    SandboxPolicy,
    validate_policy,
)
from sandbox_kernel.backends import process
from sandbox_kernel.backends.probes import capabilities
from sandbox_kernel.backends.probes.capabilities import measurements, mechanisms
from sandbox_kernel.backends.probes.measured_cache import Measured
from sandbox_kernel.jail.accounting import meter
from sandbox_kernel.jail.accounting.cgroups import Hierarchies
from sandbox_kernel.jail.rules.landlock import landlock_abi
from sandbox_kernel.languages import recipe
from sandbox_kernel.report import capability_report
from sandbox_kernel.report.capability_report import make_report

needs_landlock = pytest.mark.skipif(landlock_abi() < 1, reason="this kernel has no Landlock")


def backend(enforcer: str | None) -> ProcessBackend:
    return ProcessBackend(ProcessConfig(pool_size=0), enforcer=enforcer)


@functools.cache
def claims(enforcer: str | None) -> BackendCapabilities:
    return backend(enforcer).capabilities()


@pytest.mark.slow
def test_a_bare_process_claims_time_limit_and_environment_and_no_walls(nothing_left: None) -> None:
    """The class, what a bare process keeps, and what it does not."""
    found = claims(None)
    limits = found.enforced_limits
    assert found.isolation_class == "process"
    assert limits.timeout and limits.environment_isolation
    assert not limits.network_isolation
    assert not limits.filesystem_isolation
    assert {Language.PYTHON, Language.COMMAND} <= set(found.supported_languages)
    assert Language.WASM not in found.supported_languages


def test_memory_is_claimed_by_what_was_measured() -> None:
    line = claims(None).enforced_limits.memory
    assert line.mechanism == mechanisms(backend(None)).memory
    assert ("memory_exceeded" in line.evidence) == line.enforced


def test_a_backend_without_an_enforcer_claims_no_filesystem_isolation() -> None:
    limits = claims(None).enforced_limits
    assert not limits.filesystem_read_isolation
    assert not limits.filesystem_write_isolation
    assert not limits.syscall_filter
    assert limits.filesystem_read_isolation.evidence == "read a secret outside: read it"


def test_the_default_backend_reports_subprocess_isolation_only_when_that_was_asked_for() -> None:
    assert backend(None).isolation_class == "process"
    assert backend("auto").isolation_class == "process+sandbox"


@pytest.mark.slow
def test_a_working_host_reports_filesystem_isolation() -> None:
    limits = claims("bubblewrap").enforced_limits
    assert limits.filesystem_read_isolation and limits.filesystem_write_isolation
    assert limits.filesystem_isolation


@needs_landlock
@pytest.mark.slow
def test_landlock_keeps_what_a_policy_can_ask_for_and_says_by_what() -> None:
    found = claims("landlock")
    assert found.isolation_class == "process+sandbox"
    for name, line in found.enforced_limits.items():
        assert line, (name, line)
        assert line.mechanism and line.evidence
    limits = found.enforced_limits
    assert limits.filesystem_read_isolation.mechanism == f"landlock (ABI {landlock_abi()})"
    assert limits.network_isolation.mechanism == "seccomp: no socket can be opened"
    assert "best effort" in limits.disk.mechanism
    validate_policy(SandboxPolicy(), found)


@needs_landlock
def test_landlock_does_not_hide_the_hosts_processes_and_the_report_says_so() -> None:
    capability_report = make_report(backend("landlock"))
    line = next(line for line in capability_report.lines if line.name == "see host processes")
    assert line.enforced is False
    assert "no PID namespace" in str(capability_report)
    assert "no PID namespace" in capability_report._repr_html_()
    assert capability_report.to_dict()["weaknesses"]
    with pytest.raises(PolicyViolation, match="see host processes"):
        capability_report.require("processes")
    capability_report.require("network", "kernel", "read a secret outside", "write outside")


def test_a_bare_report_says_that_there_are_no_walls_and_did_nothing_to_the_host() -> None:
    lines = {line.name: line for line in measurements(backend(None)).lines}
    for name in ("mount", "make a user namespace", "bpf"):
        assert (lines[name].enforced, lines[name].mechanism) == (False, lines["write outside"].mechanism)
        assert "not tried" in lines[name].evidence
    assert lines["see the host's environment"].enforced is False
    assert lines["inherit the host's environment"].enforced is True
    assert lines["be root"].enforced is (None if os.geteuid() else False)
    assert "no enforcer" in str(make_report(backend(None)))


def test_a_policy_that_restricts_is_refused_by_a_backend_without_walls() -> None:
    with pytest.raises(PolicyViolation, match=r"reading outside.*enforcer='auto'"):
        validate_policy(SandboxPolicy(), claims(None))


@pytest.mark.parametrize("enforcer", ["auto", pytest.param("landlock", marks=needs_landlock)])
@pytest.mark.slow
def test_without_control_groups_the_lines_name_what_stands_in(enforcer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (meter, process, capabilities, recipe):
        monkeypatch.setattr(room, "find_hierarchies", lambda: None)
    monkeypatch.setattr(capabilities, "_measured", {})
    limits = backend(enforcer).capabilities().enforced_limits
    assert limits.timeout and limits.memory and limits.processes and limits.cpu
    if enforcer == "auto":
        assert limits.memory.mechanism == "RLIMIT_DATA and a watchdog"
        assert limits.cpu.mechanism == "CPU time of the process tree"
        tasks = "RLIMIT_NPROC in a user namespace"
    else:
        assert "best effort" in limits.timeout.mechanism
        tasks = "RLIMIT_NPROC of a user of its own" if os.geteuid() == 0 else "a watchdog on their number (best effort)"
    assert limits.processes.mechanism == tasks


def test_the_report_says_why_memory_is_only_watched_or_that_sandboxes_are_outside_of_our_own_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = "others live in its group; to have them limited, start it in a scope of its own"
    monkeypatch.setattr(capability_report, "measurements", lambda *_, **__: Measured((), 1.0))
    monkeypatch.setattr(capabilities, "shortfall", lambda: missing)
    monkeypatch.setattr(capabilities, "find_hierarchies", lambda: None)
    assert f"watched, not limited by the kernel: {missing}" in str(make_report(backend(None)))
    where = Hierarchies(2, "/a", "/a", "/a", ("sandboxes are counted elsewhere",))
    monkeypatch.setattr(capabilities, "find_hierarchies", lambda: where)
    assert "sandboxes are counted elsewhere" in make_report(backend(None)).weaknesses


@pytest.mark.slow
def test_a_host_without_room_for_the_bait_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    with pytest.raises(BackendUnavailable, match="No space left on device"):
        measurements(ProcessBackend(), again=True)
