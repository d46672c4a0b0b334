"""A jail that ends before its program has begun: an error of ours, never a result of the program."""

from __future__ import annotations

import pytest

from sandbox_kernel import EnforcerFailed, ExecRequest, Language, ProcessBackend, ProcessConfig
from sandbox_kernel.jail.gate_messages import JobFile
from sandbox_kernel.jail.run_job import Job, run_job


def test_a_gate_that_fails_before_the_program_begins_is_an_error_and_no_result(nothing_left: None) -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0))
    request = ExecRequest(language=Language.PYTHON, code="print(1)", timeout=10)
    jail = backend._pool.take(backend.walls(request, backend._recipe(request)))
    try:
        # A place that nobody inside can write.
        files = (JobFile(root="/usr/nowhere", name="a", data=b"all"),)
        job = Job(steps=(), files=files, timeout_s=10, memory_bytes=1 << 28, processes=8, output_bytes=1000)
        with pytest.raises(EnforcerFailed, match=r"before the program began, nothing was run: .*Read-only file system"):
            run_job(jail, job)
    finally:
        jail.destroy()
        jail.forget()
