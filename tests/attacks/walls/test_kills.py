"""The end of every process of a run, and of no other."""

import os
import signal

import pytest

from sandbox_kernel import ExecRequest, Language, ProcessBackend, ProcessConfig
from tests.attacks.trials import keeps_signals_in


@pytest.mark.parametrize("enforcer", ["bubblewrap", pytest.param("landlock", marks=keeps_signals_in)])
@pytest.mark.one_case
def test_a_program_cannot_have_the_kernel_signal_the_host_for_it(enforcer: str) -> None:
    """The owner of a pipe's signals may be any process that can be named; the kernel sends them when data comes."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda n, _: came.append(n)) for number in (signal.SIGIO, signal.SIGUSR1)}
    code = (
        "import fcntl, os, time\nfor fd in (0, 1, 2):\n  for pid in (@, -@, 1, os.getppid()):\n"
        "    for number in (0, 10, 29):\n"
        "      try: fcntl.fcntl(fd, 8, pid); fcntl.fcntl(fd, 10, number); fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)\n"
        "      except OSError: pass\n      os.write(1, b'x' * 4096)\n      time.sleep(0.01)"
    )
    try:
        request = ExecRequest(language=Language.PYTHON, code=code.replace("@", str(os.getpid())), timeout=20)
        result = ProcessBackend(ProcessConfig(pool_size=0), enforcer).run(request)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert result.ok, result
    assert came == []
