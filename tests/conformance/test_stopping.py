"""Interrupt, shutdown, restart, SIGKILL: everything stops, nothing is left behind, the kernel lives when it should."""

import os
import signal

import psutil
import pytest

SLEEP = "import time\nprint('running', flush=True)\ntime.sleep(60)"
DAEMON = (
    "import os, time\n"
    "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(60)\n    os._exit(0)\n"
    "print('running', flush=True)\ntime.sleep(60)"
)


def gone(processes, timeout=10):
    """Whether all of these processes end within the time."""
    return not psutil.wait_procs(processes, timeout=timeout)[1]


def start(kernel, code):
    request = kernel.kc.execute(code, allow_stdin=False)
    kernel.wait_for_output(request, "running")
    return request


@pytest.mark.attack("K09", "kernel")
@pytest.mark.slow
def test_an_interrupt_ends_the_cell_and_the_kernel_lives(kernel):
    for _ in range(3):
        request = start(kernel, SLEEP)
        kernel.km.interrupt_kernel()
        outputs = kernel.outputs(request)
        assert outputs[-1][0] == "error"
        assert kernel.reply(request)["ename"] == "KeyboardInterrupt"
    assert kernel.text("print('alive')") == "alive\n"


def test_an_interrupt_reaches_a_daemon_that_left_its_session(kernel):
    seconds = "77.777"
    code = (
        "%%sandbox --fresh\nimport os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        f"        os.execlp('sleep', 'sleep', '{seconds}')\n    os._exit(0)\n"
        "os.wait()\nos.system('while ! pgrep sleep; do :; done')\nprint('running', flush=True)\ntime.sleep(60)"
    )
    request = start(kernel, code)
    daemons = [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", seconds]]
    assert daemons
    kernel.km.interrupt_kernel()
    kernel.outputs(request)
    assert gone(daemons)


@pytest.mark.attack("K09", "kernel")
def test_an_interrupt_while_idle_is_nothing(kernel):
    # Its answer is waited for: interrupts and cells come on different channels, and the first may be the later one.
    kernel.kc.control_channel.send(kernel.kc.session.msg("interrupt_request", {}))
    assert kernel.kc.get_control_msg(timeout=30)["content"]["status"] == "ok"
    assert kernel.text("print('alive')") == "alive\n"


def test_an_interrupt_aborts_the_cells_that_wait(kernel):
    request = start(kernel, SLEEP)
    waiting = kernel.kc.execute("print('never')", allow_stdin=False)
    # This is answered while the cell runs: what was sent before it has arrived. The interrupt goes over another channel.
    kernel.reply(kernel.kc.kernel_info())
    kernel.km.interrupt_kernel()
    assert kernel.reply(request)["ename"] == "KeyboardInterrupt"
    assert kernel.reply(waiting)["status"] == "aborted"
    kernel.outputs(waiting)


@pytest.mark.slow
def test_a_plain_sigint_does_not_end_the_kernel(fresh_kernel):
    os.kill(fresh_kernel.pid, signal.SIGINT)
    assert fresh_kernel.text("print('alive')") == "alive\n"


@pytest.mark.slow
def test_shutdown_while_a_cell_runs_leaves_no_process(start_kernel):
    kernel = start_kernel()
    start(kernel, DAEMON)
    processes = [psutil.Process(kernel.pid), *kernel.descendants()]
    request = kernel.kc.shutdown()
    assert kernel.reply(request, channel="control")["status"] == "ok"
    assert gone(processes)


@pytest.mark.attack("K08", "kernel")
@pytest.mark.slow
def test_sigkill_of_the_kernel_leaves_no_process(start_kernel):
    kernel = start_kernel()
    start(kernel, DAEMON)
    processes = [psutil.Process(kernel.pid), *kernel.descendants()]
    assert len(processes) > 2
    os.kill(kernel.pid, signal.SIGKILL)
    assert gone(processes)


@pytest.mark.attack("K09", "kernel")
@pytest.mark.slow
def test_a_restart_begins_anew_and_leaves_nothing_of_the_old_kernel(start_kernel):
    kernel = start_kernel()
    kernel.run("%sandbox --timeout 9s")
    start(kernel, SLEEP)
    old = [psutil.Process(kernel.pid), *kernel.descendants()]
    kernel.km.restart_kernel(now=False)
    kernel.kc.wait_for_ready(timeout=60)
    assert gone(old)
    reply, outputs = kernel.run("%sandbox")
    assert reply["execution_count"] == 1
    assert outputs[0][1]["data"]["text/plain"] == "%sandbox --timeout 30s"
