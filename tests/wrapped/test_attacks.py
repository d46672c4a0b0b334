"""The lines of the attack list that are about a Jupyter kernel, tried by cells and clients of a wrapped ipykernel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


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


def test_only_colours_are_left_of_escape_sequences(kernel):
    printed = kernel.text(r"print('\x1b]52;c;cm0gLXJm\x07\x1b]8;;http://x\x07a\x1b[2J\x1b[1A\x1b[31mred\x1b[0m')")
    assert printed == "a\x1b[31mred\x1b[0m\n"


def test_bytes_that_are_no_text_arrive_as_text(kernel):
    reply, outputs = kernel.run(r"""
import os, sys
os.write(1, b'\xff\xfe\x00\xf0\x9f'); os.write(1, b'\x98\x80')
print('\ud800 \u202e after')
""")
    assert "UnicodeEncodeError" in str(reply) or reply["status"] == "ok"
    json.dumps(outputs).encode("utf-8")
    assert kernel.text("print('goes on')") == "goes on\n"


def test_a_prompt_for_a_password_says_who_asks(kernel):
    request = kernel.kc.execute("import getpass; print(len(getpass.getpass('Jupyter password: ')))", allow_stdin=True)
    asked = kernel.kc.get_stdin_msg(timeout=30)["content"]
    assert asked == {"prompt": "sandbox asks: Jupyter password:", "password": True}
    kernel.kc.input("four")
    assert ("stream", {"name": "stdout", "text": "4\n"}) in kernel.outputs(request)
    kernel.reply(request)


def test_each_of_many_cells_gets_its_own_output(kernel):
    requests = {kernel.kc.execute(f"print('token', {number})"): number for number in range(60)}
    for request, number in requests.items():
        printed = [content["text"] for kind, content in kernel.outputs(request) if kind == "stream"]
        assert "".join(printed) == f"token {number}\n"
    for request in requests:
        assert kernel.reply(request)["status"] == "ok"


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
