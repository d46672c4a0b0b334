"""A cell of a wrapped kernel sends messages of its own making: what of them reaches a front end."""

import pytest
import zmq

from sandbox_kernel.model import FsChange
from sandbox_kernel.untrusted.frames.frame_output import FRAME
from sandbox_kernel.wrapped import kernel_words, record
from sandbox_kernel.wrapped.relaying.relay import Relay
from tests.wrapped.conftest import WrappedClient
from tests.wrapped.relaying.test_widgets import SEND


@pytest.mark.parametrize(
    "hostile",
    [
        "send('comm_open', {'comm_id': 'a', 'target_name': 'jupyter.widget', 'data': {}})",
        "send('display_data', {'data': {'application/javascript': 'evil()'}, 'metadata': {}})",
        "send('made_up', {'evil': 'evil()'})",
        "send('stream', {'name': 'stdout', 'text': ['evil()']})",
        "send('error', 'evil()')",
        "kernel.iopub_socket.send_multipart([b'evil()'] * 2000)",
        "kernel.iopub_socket.send_multipart([b'<IDS|MSG>', b'', b'{' * 100000, b'{}', b'{}', b'{}', b'evil()'])",
        "kernel.iopub_socket.send_multipart([b'<IDS|MSG>', b'', b'{}', b'{}', b'{}', b'{\"x\":[' + b'[],' * 3000000 + b'[]]}'])",
    ],
)
@pytest.mark.one_case
def test_what_a_page_must_not_get_does_not_arrive_and_the_kernel_goes_on(kernel, hostile):
    kernel.run(SEND)
    _, outputs = kernel.run(hostile)
    assert "evil()" not in str(outputs)
    assert {kind for kind, _ in outputs} <= {"stream", "display_data"}
    assert kernel.text("print('goes on')") == "goes on\n"


def test_markup_with_handlers_stands_in_the_page_only_as_the_text_of_a_frame(kernel):
    _, [(_, shown)] = kernel.run("display({'text/html': '<img src=x onerror=evil()>'}, raw=True)")
    assert shown["data"].keys() == {FRAME, "text/html", "text/plain"}
    assert "<img" not in shown["data"]["text/html"]
    assert '<iframe sandbox="allow-scripts"' in shown["data"]["text/html"]


def test_a_remark_of_ours_stands_on_a_line_of_its_own_without_the_colours_of_the_kernel(kernel):
    hidden = "import sys; print('\\x1b[8;37mx\\x1b[37mwhite', end='', file=sys.stderr, flush=True)"
    _, outputs = kernel.run(f"{hidden}; display({{'application/pdf': 'x'}}, raw=True)")
    said = "".join(content["text"] for kind, content in outputs if kind == "stream")
    assert "x\x1b[37mwhite\x1b[0m\n\u25a3 application/pdf was not shown" in said, outputs


@pytest.mark.slow
def test_a_message_of_200_mb_is_dropped_which_its_cell_says_and_the_relay_stays_small(kernel):
    import psutil

    kernel.run(SEND)
    large = "kernel.iopub_socket.send_multipart([b'<IDS|MSG>', b'', b'x' * 200_000_000])"
    assert "a part of the output is not shown" in str(kernel.run(large, timeout=90))
    assert kernel.text("print('goes on')") == "goes on\n"
    assert psutil.Process(kernel.pid).memory_info().rss < 400_000_000


@pytest.mark.parametrize(("megabytes", "shown"), [(31, True), (33, False)])
@pytest.mark.slow
def test_a_display_too_large_for_a_page_is_said_in_its_cell(kernel, megabytes, shown):
    kernel.run(SEND)
    outputs = kernel.run(f"display({{'text/plain': 'x' * ({megabytes} << 20)}}, raw=True)", timeout=90)
    assert ("a part of the output is not shown" not in str(outputs)) == shown


LOOP = "import time\nwhile True: time.sleep(0.05)"
RAW = """
import json, uuid, hmac, hashlib
def raw(socket, kind, content, parent):
    header = {"msg_id": uuid.uuid4().hex, "msg_type": kind, "username": "x", "session": "s", "date": "", "version": "5.3"}
    parts = [json.dumps(part, default=str).encode() for part in (header, parent, {}, content)]
    sign = hmac.new(kernel.session.key, b"".join(parts), hashlib.sha256).hexdigest().encode()
    socket.send_multipart([b"sandbox-relay", b"<IDS|MSG>", sign, *parts])
"""


@pytest.fixture(scope="module")
def short(wrap, tmp_path_factory):
    """A wrapped kernel with a time limit for cells, and its record."""
    path = tmp_path_factory.mktemp("record") / "record.jsonl"
    client = WrappedClient(wrap("python3", "--timeout", "2s", "--record", str(path), as_name="short"))
    client.record = path
    client.run(SEND + RAW)
    yield client
    client.close()


@pytest.mark.parametrize(
    "trick",
    [
        "send('status', {'execution_state': 'idle'})",
        "raw(kernel.stdin_socket, 'input_request', {'prompt': 'x', 'password': False}, {'msg_id': 'nobody'})",
        "raw(kernel.stdin_socket, 'input_request', {'prompt': 'x', 'password': False}, kernel.get_parent()['header'])",
    ],
    ids=["idle", "question of nobody", "question that nobody may be asked"],
)
@pytest.mark.one_case
def test_a_message_of_a_cell_does_not_stop_its_own_clock(short, trick):
    reply, outputs = short.run(f"{trick}\n{LOOP}")
    assert reply["ename"] == "KeyboardInterrupt"
    assert "ran longer than its limit" in str(outputs)


def test_odd_values_in_a_reply_do_not_end_the_relay_and_the_record_lists_a_caught_interrupt(short):
    short.run(
        "raw(kernel.stdin_socket, 'kernel_info_reply', {'supported_features': [[1]]}, kernel.get_parent()['header'])"
    )
    short.run(f"try:\n    {LOOP.replace(chr(10), chr(10) + '    ')}\nexcept KeyboardInterrupt: pass")
    short.km.shutdown_kernel()
    [made] = record.read(str(short.record))
    assert made.failures[-1] == record.CellFailure(cell=made.cells, name="", words="", out_of_time=True)
    assert made.dropped > 0


def test_a_channel_without_a_message_does_not_hold_up_the_others():
    relay = Relay.__new__(Relay)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as control:
        control.rcvtimeo = 1000
        relay._sockets = {"control": control}
        relay._from_outside("control", None)


@pytest.mark.slow
def test_a_kernel_that_breaks_its_connection_is_ended_and_the_cell_says_so(wrap, start):
    kernel = start(wrap("python3"))
    reply, _ = kernel.run(
        "import os, socket\n"
        "for name in os.listdir('/proc/self/fd'):\n"
        "    try: sock = socket.socket(fileno=os.dup(int(name)))\n"
        "    except OSError: continue\n"
        "    if sock.family == socket.AF_INET and sock.getsockname()[1] == 5001:\n"
        "        try: os.write(sock.fileno(), b'\\xff' * 64)\n"
        "        except OSError: pass\n"
        "while True: pass"
    )
    assert reply["ename"] == "SandboxKilled"
    assert "broke its connection" in reply["evalue"]


#: A name that a kernel chose: a line in our name, hidden and turned round.
FORGED = "x\n\u25a3 all is written\x1b[8m\u202e"


@pytest.mark.parametrize(
    "line",
    [
        kernel_words.remark(f"HTML was shown without <{FORGED}>"),
        *map(kernel_words.remark, kernel_words.changed([FsChange(path=FORGED, kind="created")], [])),
        str(kernel_words.no_start("it broke", FORGED)["traceback"][0]) + "\n",  # type: ignore[index]
    ],
)
def test_a_line_that_quotes_a_kernel_is_one_line_with_one_mark(line: str) -> None:
    assert line.count("\u25a3") == 1 and line.removeprefix("\x1b[0m").startswith("\u25a3 ")
    assert line.count("\n") == 1 and line.endswith("\n") and "\x1b[8m" not in line and "\u202e" not in line
