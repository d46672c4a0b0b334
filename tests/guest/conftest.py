"""A Python session shared by tests that only look at what it shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.session.opening import open_session
from sandbox_kernel.session.session import Session


@pytest.fixture(scope="module")
def python() -> Iterator[Session]:
    with open_session(ProcessBackend(), "python", memory_mb=1024) as session:
        yield session
