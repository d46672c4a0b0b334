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


#: What the kernel process works for a cell that shows without end is measured as time of a processor, and as its memory:
#: neither depends on how busy the machine is.
PREPARED = """
import base64, itertools
from IPython.display import clear_output, display, update_display
COMM, FRAME = (f"application/vnd.sandbox-kernel.{kind}+json" for kind in ("comm", "frame"))
def comm(kind, name, state, buffers=(), paths=()):
    data = {"method": "update", "state": state, "buffer_paths": list(paths)}
    said = {"msg_type": kind, "comm_id": name, "target_name": "jupyter.widget", "data": data, "metadata": {}}
    display({COMM: {**said, "buffers": list(buffers)}}, raw=True)
def widget():
    display({FRAME: {"html": "", "libraries": [], "widget": {"model_id": "abc"}}}, raw=True)
part = base64.b64encode(bytes(8 << 20)).decode()
for n in range(10):
    comm("comm_open", f"{n}", {"a": None}, [part], [["a"]])
comm("comm_open", "abc", {"children": [f"IPY_MODEL_{n}" for n in range(10)], "text": ""})
print("prepared")
"""
#: What is shown again and again.
BOMBS = {
    "a widget of 80 MB": "widget()",
    "state of widgets": "comm('comm_msg', 'abc', {'text': 'x' * (8 << 20)})",
    "large text": "display({'text/plain': 'x' * (1 << 20)}, raw=True)",
    "brackets in a frame": "display({'text/html': '<script>' + '<' * (10 << 20)}, raw=True)",
    "quotes in a frame": "display({FRAME: {'html': '\"' * (6 << 20), 'libraries': []}}, raw=True)",
    "JSON": "display({'application/json': {str(i): [i] for i in range(20000)}}, raw=True)",
    "clearing": "clear_output()",
    "updates": "update_display({'text/plain': 'x' * 10000}, display_id='x', raw=True)",
}


@pytest.fixture(scope="module")
def prepared(client_class):
    """A kernel whose session has a widget of 80 MB and shows what it is told."""
    client = client_class()
    assert "prepared" in client.text(f"%%sandbox --timeout 100s\n{PREPARED}")
    yield client
    client.close()


def worked_s(kernel):
    """Seconds of a processor that the kernel process itself has used."""
    times = psutil.Process(kernel.pid).cpu_times()
    return times.user + times.system


@pytest.mark.parametrize("shown", BOMBS.values(), ids=BOMBS)
@pytest.mark.one_case
def test_stop_is_answered_while_a_cell_shows_without_end(prepared, shown):
    kernel = prepared
    request = kernel.kc.execute(f"%%sandbox --timeout 100s\nprint('begins', flush=True)\nwhile True: {shown}")
    kernel.wait_for_output(request, "begins")
    for _ in range(20):  # while it is shown: each answer comes between two pieces of the host's work
        before = worked_s(kernel)
        kernel.reply(kernel.send("kernel_info_request", {}, "control"), channel="control")
        assert worked_s(kernel) - before < 1.0
    before = worked_s(kernel)
    assert kernel.reply(kernel.send("interrupt_request", {}, "control"), channel="control")["status"] == "ok"
    assert worked_s(kernel) - before < 1.0
    kernel.outputs(request)
    assert kernel.reply(request)["ename"] == "KeyboardInterrupt"
    assert worked_s(kernel) - before < 15.0


def test_showing_a_large_widget_many_times_costs_the_host_next_to_nothing(prepared):
    kernel = prepared
    used = psutil.Process(kernel.pid).memory_info().rss
    before = worked_s(kernel)
    reply, outputs = kernel.run("%%sandbox --timeout 100s\nfor _ in range(40): widget()")
    assert reply["status"] == "ok"
    assert len([1 for kind, _ in outputs if kind == "display_data"]) == 41
    assert worked_s(kernel) - before < 10.0  # it was three seconds for each, and a hundred megabytes
    assert psutil.Process(kernel.pid).memory_info().rss - used < 100 << 20
