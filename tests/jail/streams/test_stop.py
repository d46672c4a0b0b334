"""A host with thousands of open files: descriptors above a thousand are waited for like any other."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator

import pytest

from sandbox_kernel import ExecRequest, Language, ProcessBackend, ProcessConfig
from sandbox_kernel.jail.rules.landlock import landlock_abi
from sandbox_kernel.jail.streams import readable
from sandbox_kernel.session.opening.open_session import open_session

_MANY = 1100


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * _MANY:
        pytest.skip("so many files cannot be opened here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * _MANY), hard))
    with contextlib.ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(_MANY):
            held.callback(os.close, os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        yield


@pytest.mark.usefixtures("many_descriptors")
def test_a_descriptor_above_a_thousand_can_be_waited_for() -> None:
    read, write = os.pipe()
    try:
        assert read > 1024
        assert not readable(read, 0)
        os.write(write, b"x")
        assert readable(read, 0)
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.usefixtures("many_descriptors")
@pytest.mark.parametrize("enforcer", ["bubblewrap", *(["landlock"] if landlock_abi() else [])])
@pytest.mark.one_case
def test_runs_and_sessions_work_there(enforcer: str) -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0), enforcer=enforcer)
    assert backend.run(ExecRequest(language=Language.PYTHON, code="print(1)", timeout=30)).stdout == "1\n"
    with open_session(backend) as session:
        session.run("x = 1")
        assert session.run("while True: pass", timeout=0.2).rolled_back
        assert session.run("print(x)").stdout == "1\n"
