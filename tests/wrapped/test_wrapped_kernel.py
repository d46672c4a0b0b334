"""A wrapped ipykernel behind Jupyter's own client: everything a notebook does, and what ends a kernel."""

import json
import os
import signal
from pathlib import Path

import psutil
import pytest
from jupyter_client import BlockingKernelClient

from tests.conformance.test_modules_beside import leave_modules


def outputs_of(kernel, code, kind):
    return [content for each, content in kernel.run(code)[1] if each == kind]


@pytest.mark.slow
def test_a_cell_runs_with_state_and_value(kernel):
    assert kernel.run("x = 41")[0]["status"] == "ok"
    assert outputs_of(kernel, "x + 1", "execute_result")[0]["data"] == {"text/plain": "42"}


def test_the_packages_of_the_kernel_are_there_and_the_home_folder_is_not(kernel):
    assert kernel.text("import numpy; print(numpy.arange(3).sum())") == "3\n"
    home = os.path.expanduser("~")
    shown = kernel.text(f"import os; print(os.listdir({home!r}) if os.path.exists({home!r}) else 'nothing')")
    assert ".ssh" not in shown and ".bash_history" not in shown and ".config" not in shown


@pytest.mark.slow
def test_the_folder_of_the_notebook_is_not_shown_and_its_modules_are_not_imported_outside(
    wrap, start, tmp_path, monkeypatch
):
    told = leave_modules(tmp_path)
    monkeypatch.chdir(tmp_path)
    kernel = start(wrap("python3"))
    assert kernel.text(f"import os; print(os.path.exists({str(tmp_path)!r}))") == "False\n"
    assert not told.exists()


def test_the_kernel_has_no_network_and_no_processes_of_the_host(kernel):
    _, outputs = kernel.run("import socket; socket.create_connection(('203.0.113.1', 80), 5)")
    assert outputs[-1][1]["evalue"] == "[Errno 101] Network is unreachable"
    count = int(kernel.text("import os; print(len([p for p in os.listdir('/proc') if p.isdigit()]))"))
    assert count < 8


def test_the_kernel_sees_its_own_connection_file_and_not_the_outside_key(kernel):
    inner = kernel.text("import json; print(json.load(open('/cell/connection.json'))['key'])").strip()
    assert inner
    assert inner != kernel.kc.session.key.decode()
    everything = kernel.text("import os; print(open('/proc/self/cmdline').read(), dict(os.environ))")
    assert kernel.km.connection_file not in everything


LACKING = {
    "python3": ("open('sales.csv')", "import urllib.request as u\nu.urlopen('http://example.org')", "1/0"),
    "ir": ("read.csv('sales.csv')", "readLines(url('http://example.org'))", "stop('x')"),
}


@pytest.mark.parametrize("name", LACKING)
@pytest.mark.slow
def test_above_an_error_stands_what_the_cell_lacked_in_any_language(name, wrap, start, spec, tmp_path, monkeypatch):
    if name == "ir":
        if not Path("/usr/lib/R/site-library/IRkernel").is_dir():
            pytest.skip("IRkernel is not installed")
        spec("ir", ("R", "--slave", "-e", "IRkernel::main()", "--args", "{connection_file}"))
    (tmp_path / "sales.csv").write_text("a\n")
    monkeypatch.chdir(tmp_path)
    kernel = start(wrap(name, as_name=f"lacks-{name}"))
    file, network, neither = (
        "".join(content.get("text", f"<{kind}>") for kind, content in kernel.run(code)[1]) for code in LACKING[name]
    )
    above, below = file.split("<error>")
    assert "▣ sales.csv is beside the notebook" in above and f"sandbox-kernel wrap {name} --here" in above
    assert "network" not in file and "▣" not in below
    assert "▣ there is no network in this sandbox; to let it reach a host: " in network.split("<error>")[0]
    assert "▣" not in neither


@pytest.mark.slow
def test_much_printed_text_arrives_whole_and_in_order_in_messages_that_a_page_can_read_one_by_one(kernel):
    _, outputs = kernel.run("import sys; sys.stdout.write(''.join(f'{n:0109}\\n' for n in range(90_000)))")
    texts = [content["text"] for kind, content in outputs if kind == "stream"]
    assert "".join(texts) == "".join(f"{n:0109}\n" for n in range(90_000))
    assert max(map(len, texts)) <= 4 << 20


def test_input_is_asked_from_the_client_that_sent_the_cell_and_is_marked(kernel):
    request = kernel.kc.execute("print('got', input('name? '))", allow_stdin=True)
    asked = kernel.kc.get_stdin_msg(timeout=30)
    assert asked["content"] == {"prompt": "sandbox asks: name?", "password": False}
    kernel.kc.input("me")
    assert ("stream", {"name": "stdout", "text": "got me\n"}) in kernel.outputs(request)
    kernel.reply(request)


@pytest.mark.parametrize("by_signal", [False, True], ids=["by message", "by a signal to the launcher"])
def test_an_interrupt_is_a_keyboard_interrupt_and_keeps_the_state(kernel, by_signal):
    kernel.run("kept = 7")
    request = kernel.kc.execute("import time\nprint('begun', flush=True)\ntime.sleep(60)", stop_on_error=False)
    kernel.wait_for_output(request, "begun")
    if by_signal:
        os.kill(kernel.pid, signal.SIGINT)
    else:
        kernel.km.interrupt_kernel()
    assert kernel.reply(request)["ename"] == "KeyboardInterrupt"
    assert kernel.text("print(kept)") == "7\n"


def test_two_clients_share_the_kernel_and_each_gets_its_own_replies(kernel):
    second = BlockingKernelClient(connection_file=kernel.km.connection_file)
    second.load_connection_file()
    second.start_channels()
    second.wait_for_ready(timeout=60)
    try:
        mine, theirs = kernel.kc.execute("1"), second.execute("2")
        assert kernel.reply(mine)["status"] == "ok"
        while (message := second.get_shell_msg(timeout=30))["parent_header"]["msg_id"] != theirs:
            pass
        assert message["content"]["status"] == "ok"
    finally:
        second.stop_channels()


def test_a_client_that_connects_again_under_its_name_is_served(kernel):
    kernel.kc.stop_channels()
    kernel.kc = kernel.km.client()
    kernel.kc.start_channels()
    kernel.kc.wait_for_ready(timeout=60)
    assert kernel.text("print('again')") == "again\n"


def test_a_message_signed_with_another_key_is_not_run(kernel):
    key, kernel.kc.session.key = kernel.kc.session.key, b"another"
    request = kernel.kc.execute("forged = 1")
    kernel.kc.session.key = key
    assert kernel.text("print('forged' in globals())") == "False\n"
    assert request


def test_what_is_removed_is_said_in_the_cell(kernel):
    _, outputs = kernel.run("display({'application/x-javascript': 'x', 'text/plain': 'y'}, raw=True)")
    told = [content["text"] for kind, content in outputs if kind == "stream" and content["name"] == "stderr"]
    assert told == ["▣ JavaScript was not shown: scripts of a sandbox do not run in the page\n"]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["shutdown", "kill the launcher"])
def test_every_process_ends_with_the_kernel(wrap, start, way):
    kernel = start(wrap("python3"))
    kernel.run("import subprocess; subprocess.Popen(['sleep', '1000'])")
    processes = [psutil.Process(kernel.pid), *kernel.descendants()]
    assert any(process.name() == "sleep" for process in processes)
    if way == "shutdown":
        kernel.km.shutdown_kernel()
    else:
        os.kill(kernel.pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(processes, timeout=20)
    assert alive == []


@pytest.mark.slow
def test_a_cell_that_runs_too_long_is_interrupted_and_one_that_ignores_it_ends_its_kernel(wrap, start):
    kernel = start(wrap("python3", "--timeout", "1s", as_name="quick"))
    kernel.run("kept = 1")
    reply, outputs = kernel.run("import time; time.sleep(100)")
    assert reply["ename"] == "KeyboardInterrupt"
    assert any("limit of 1 s" in content.get("text", "") for _, content in outputs)
    assert kernel.text("print(kept)") == "1\n"
    request = kernel.kc.execute("import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(100)")
    outputs = kernel.outputs(request, timeout=60)
    assert [content["ename"] for kind, content in outputs if kind == "error"] == ["SandboxTimeout"]


# The lines of the attack list that are about a Jupyter kernel.


def test_no_connection_file_of_a_front_end_is_seen_and_its_ports_are_not_reached(kernel):
    file = Path(kernel.km.connection_file)
    port = json.loads(file.read_text())["shell_port"]
    look = f"""
import glob, os, socket
print(os.path.exists({str(file)!r}), glob.glob({str(file.parent)!r} + '/*'))
with socket.socket() as tried:
    print(tried.connect_ex(('127.0.0.1', {port})) != 0)
"""
    assert kernel.text(look) == "False []\nTrue\n"


def test_bytes_that_are_no_text_arrive_as_text(kernel):
    reply, outputs = kernel.run(r"""
import os, sys
os.write(1, b'\xff\xfe\x00\xf0\x9f'); os.write(1, b'\x98\x80')
print('\ud800 \u202e after')
""")
    assert "UnicodeEncodeError" in str(reply) or reply["status"] == "ok"
    json.dumps(outputs).encode("utf-8")
    assert kernel.text("print('goes on')") == "goes on\n"


@pytest.mark.slow
def test_a_storm_of_interrupts_keeps_the_state_and_a_restart_drops_it(wrap, start):
    kernel = start(wrap("python3"))
    kernel.run("kept = 1")
    for _ in range(5):
        request = kernel.kc.execute("print('begun', flush=True)\nwhile True: pass", stop_on_error=False)
        kernel.wait_for_output(request, "begun")
        kernel.km.interrupt_kernel()
        assert kernel.reply(request, timeout=60)["ename"] == "KeyboardInterrupt"
    assert kernel.text("print(kept)") == "1\n"
    kernel.km.restart_kernel(now=True)
    kernel.kc.wait_for_ready(timeout=60)
    assert kernel.text("print('kept' in globals())") == "False\n"


def test_a_link_that_a_kernel_plants_is_refused_at_its_next_start(wrap, start, tmp_path):
    project, secret = tmp_path / "project", tmp_path / "secret"
    for folder in (project / "data", secret):
        folder.mkdir(parents=True)
    (secret / "key").write_text("CANARY")
    name = wrap("python3", "--mount", f"{project}:/work:rw", "--mount", f"{project}/data:/data", as_name="planted")
    first = start(name)
    first.run(f"import os; os.rename('/work/data', '/work/old'); os.symlink({str(secret)!r}, '/work/data')")
    assert (project / "data").is_symlink()
    first.close()
    tried = str(start(name).run("print(open('/data/key').read())"))
    assert "programs may write to" in tried
    assert "CANARY" not in tried
