"""What the host lacks when a sandbox is to be started is told in words, and nothing is left of the attempt."""

from __future__ import annotations

import resource

import pytest

from sandbox_kernel import EnforcerFailed, ExecRequest, Language, ProcessBackend, ProcessConfig
from sandbox_kernel.jail import bubblewrap_jail

REQUEST = ExecRequest(language=Language.PYTHON, code="print(1)", timeout=20)


def test_a_bwrap_that_is_gone_in_the_middle_is_a_typed_error(
    monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0), enforcer="bubblewrap")
    monkeypatch.setattr(bubblewrap_jail, "find_bwrap", lambda: "/nowhere/bwrap")
    with pytest.raises(EnforcerFailed, match="nowhere"):
        backend.run(REQUEST)
    monkeypatch.undo()
    assert backend.run(REQUEST).stdout == "1\n"


def test_a_host_without_free_descriptors_says_so_and_works_again_when_it_has_some(nothing_left: None) -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(EnforcerFailed, match="Too many open files"):
            backend.run(REQUEST)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert backend.run(REQUEST).stdout == "1\n"
