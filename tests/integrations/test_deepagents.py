"""deepagents: the whole sandbox suite of ``langchain-tests``, on a real sandbox."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("deepagents", reason="deepagents is not installed; make frameworks")
pytest.importorskip("langchain_tests", reason="langchain-tests is not installed; make frameworks")

from langchain_tests.integration_tests import SandboxIntegrationTests

from sandbox_kernel.integrations.deepagents import SandboxKernelBackend


class TestLangChainsOwnSuite(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self) -> Iterator[SandboxKernelBackend]:
        with SandboxKernelBackend() as backend:
            yield backend


def test_a_command_that_takes_too_long_is_stopped_and_undone() -> None:
    with SandboxKernelBackend() as backend:
        backend.execute("echo kept > /box/a")
        answer = backend.execute("echo lost > /box/a; sleep 60", timeout=1)
        assert answer.exit_code == 124
        assert backend.execute("cat /box/a").output == "kept\n"
