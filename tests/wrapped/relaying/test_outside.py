"""The connection file is one of Jupyter; what waits for front ends that do not read is bounded in bytes."""

import json
import socket
from pathlib import Path

import pytest

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.wrapped import launcher
from sandbox_kernel.wrapped.inner_kernel import CHANNELS
from sandbox_kernel.wrapped.relaying import outside
from sandbox_kernel.wrapped.relaying.outside import LARGE, MOST, ConnectionFile, UnreadMessages
from sandbox_kernel.wrapped.relaying.wire import Signer


class Unread:
    """A socket whose messages nobody reads: it keeps them, as libzmq does."""

    def __init__(self):
        self.messages = []

    def send(self, frame, flags=0):
        assert not flags
        self.messages.append([frame])

    def send_multipart(self, frames, copy=True):
        self.messages.append(frames)


def test_large_messages_that_nobody_reads_are_dropped_and_small_ones_are_not():
    sock, queue = Unread(), UnreadMessages()
    for _ in range(2 * MOST // (16 << 20)):
        queue.send(sock, [bytes(16 << 20)])
    assert len(sock.messages) == queue.dropped == MOST // (16 << 20)
    assert queue.is_full
    queue.send(sock, [bytes(LARGE - 1)])
    assert len(sock.messages[-1][0]) == LARGE - 1


def test_what_was_read_is_forgotten():
    sock, queue = Unread(), UnreadMessages()
    for _ in range(5):
        queue.send(sock, [bytes(16 << 20)])
    assert queue.is_full
    trackers = [frame.tracker for frames in sock.messages for frame in frames]
    sock.messages.clear()
    for tracker in trackers:
        tracker.wait(60)
    assert not queue.is_full
    assert queue.dropped == 0


def test_a_front_end_that_does_not_read_at_all_does_not_stop_the_others(monkeypatch):
    monkeypatch.setattr(outside, "STUCK_S", 0.0)
    sock, queue = Unread(), UnreadMessages()
    for _ in range(5):
        queue.send(sock, [bytes(16 << 20)])
    assert not queue.is_full


PORTS = {f"{channel}_port": 5000 + number for number, channel in enumerate(CHANNELS)}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"shell_port": 1}, "iopub_port"),
        ({**PORTS, "hb_port": "5"}, "hb_port"),
        ({**PORTS, "key": None}, "key"),
        ([], "object"),
        ({**PORTS, "signature_scheme": "rot13"}, "'rot13' is not known"),
    ],
)
def test_what_is_no_connection_file_is_refused_and_its_field_is_named(tmp_path: Path, given: object, why: str) -> None:
    file = tmp_path / "kernel.json"
    file.write_text(json.dumps(given))
    with pytest.raises(InvalidRequest, match=why):
        ConnectionFile.read(str(file)).signer()


def test_a_connection_file_may_leave_out_what_has_a_usual_value(tmp_path: Path) -> None:
    file = tmp_path / "kernel.json"
    file.write_text(json.dumps({**PORTS, "key": "k", "kernel_name": "any"}))
    found = ConnectionFile.read(str(file))
    assert (found.ip, found.port("hb"), found.signer()) == ("127.0.0.1", PORTS["hb_port"], Signer(b"k"))


def test_a_port_that_is_taken_is_one_line_in_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = {f"{name}_port": taken.getsockname()[1] for name in CHANNELS}
        (tmp_path / "c.json").write_text(json.dumps({"transport": "tcp", "ip": "127.0.0.1", "key": "k", **ports}))
        assert launcher._outside(str(tmp_path / "c.json")) is None
    assert "in use" in capfd.readouterr().err


@pytest.mark.slow
def test_the_cell_names_what_the_program_said_and_the_line_that_shows_a_file(spec, wrap, start):
    spec("broken", ["python3", "-m", "no_such_module_here", "{connection_file}"])
    kernel = start(wrap("broken"))
    for _ in range(2):
        reply, outputs = kernel.run("1 + 1")
        assert reply["ename"] == outputs[-1][1]["ename"] == "KernelDidNotStart"
    assert "ended itself with exit code 1" in reply["evalue"]
    assert "No module named no_such_module_here" in reply["evalue"]
    assert "sandbox-kernel wrap --mount PATH:PATH" in reply["evalue"]
    assert outputs[-1][1]["traceback"][0].startswith("▣ KernelDidNotStart: ")
    kernel.km.shutdown_kernel()
    assert not kernel.km.is_alive()


def test_a_policy_file_that_is_gone_since_is_named(wrap, start, tmp_path):
    policy = tmp_path / "rules.toml"
    policy.write_text("allowNetwork = false\n")
    name = wrap("python3", "--policy", str(policy), as_name="policy-gone")
    policy.unlink()
    reply, _ = start(name).run("1")
    assert reply["ename"] == "KernelDidNotStart"
    assert str(policy) in reply["evalue"]
