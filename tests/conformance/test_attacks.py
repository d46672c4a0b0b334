"""Attacks of the list whose target is the kernel itself, seen by a client."""

import json
import secrets
from pathlib import Path

import pytest


@pytest.mark.attack("N05", "kernel")
@pytest.mark.slow
def test_a_cell_finds_no_connection_file_and_no_port_of_its_own_or_another_kernel(kernel):
    connection = json.loads(Path(kernel.km.connection_file).read_text())
    ports = [value for name, value in connection.items() if name.endswith("_port")]
    assert len(ports) >= 5
    said = kernel.text(
        "import glob, os, socket\n"
        f"found = [p for p in ({kernel.km.connection_file!r},) if os.path.exists(p)]\n"
        "for place in ('/root/.local/share/jupyter/runtime', '/run/user', '/tmp', os.path.expanduser('~')):\n"
        "    found += glob.glob(place + '/**/kernel-*.json', recursive=True)\n"
        f"for port in {ports}:\n"
        f"    try: found.append(socket.create_connection(({connection['ip']!r}, port), 2))\n"
        "    except OSError: pass\n"
        "for name in glob.glob('/proc/[0-9]*/cmdline') + glob.glob('/proc/[0-9]*/environ'):\n"
        "    try: found += [name] if b'kernel-' in open(name, 'rb').read() else []\n"
        "    except OSError: pass\n"
        "print(found)"
    )
    assert said == "[]\n"
    assert connection["key"] not in said


@pytest.mark.attack("O03", "kernel")
def test_bytes_that_are_no_text_reach_the_page_as_text(kernel):
    code = "import os\nos.write(1, b'\\xff\\xfe\\x00\\xf0\\x9f'); os.write(1, b'\\x98\\x80\\xed\\xa0\\x80')\nprint('\\u202e', end='')"
    reply, outputs = kernel.run(code)
    assert reply["status"] == "ok"
    text = "".join(content["text"] for kind, content in outputs if kind == "stream")
    assert text.startswith("\ufffd\ufffd")
    assert "\U0001f600" in text
    json.dumps(outputs).encode()


@pytest.mark.attack("K09", "kernel")
@pytest.mark.slow
def test_a_storm_of_interrupts_and_restarts_leaves_a_kernel_that_works(start_kernel):
    kernel = start_kernel()
    kernel.run("kept = 41")
    for _ in range(2):
        request = kernel.kc.execute("print('running', flush=True)\nwhile True: pass", allow_stdin=False)
        kernel.wait_for_output(request, "running")
        for _ in range(20):
            kernel.km.interrupt_kernel()
        assert kernel.reply(request)["ename"] == "KeyboardInterrupt"
        kernel.outputs(request)
        # Interrupts that are still under way meet the next cells.
        while kernel.run("pass", stop_on_error=False)[0]["status"] != "ok":
            pass
    assert kernel.text("print(kept)") == "41\n"
    for _ in range(3):
        kernel.km.restart_kernel(now=True)
    kernel.kc.wait_for_ready(timeout=60)
    assert kernel.text("print('kept' in globals())") == "False\n"


@pytest.mark.attack("O16", "kernel")
def test_each_of_many_queued_cells_answers_with_its_own_token(kernel):
    tokens = [secrets.token_hex(8) for _ in range(30)]
    requests = [kernel.kc.execute(f"print('{token}')", allow_stdin=False) for token in tokens]
    for request, token in zip(requests, tokens, strict=True):
        said = [content["text"] for kind, content in kernel.outputs(request) if kind == "stream"]
        assert said == [f"{token}\n"]
