"""Inspect: its own ``self_check`` for providers of sandboxes, on a real sandbox."""

from collections.abc import AsyncIterator

import pytest

pytest.importorskip("inspect_ai", reason="inspect-ai is not installed; make .venv/.installed-frameworks")
pytest.importorskip("pytest_asyncio", reason="pytest-asyncio is not installed; make .venv/.installed-frameworks")

import pytest_asyncio
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

from sandbox_kernel.integrations.inspect_ai import SandboxKernelEnvironment

pytestmark = pytest.mark.asyncio

#: Checks that run something as a second user. A sandbox has one.
NEEDS_A_SECOND_USER = {"test_exec_as_user"}


@pytest_asyncio.fixture
async def sandbox_env(request: pytest.FixtureRequest) -> AsyncIterator[SandboxKernelEnvironment]:
    if request.node.originalname in NEEDS_A_SECOND_USER:
        request.node.add_marker(pytest.mark.xfail(reason="a sandbox has one user", strict=True))
    made = await SandboxKernelEnvironment.sample_init("test", None, {})
    yield made["default"]
    await SandboxKernelEnvironment.sample_cleanup("test", None, made, False)
