"""Front ends that do not read: what waits for them is bounded in bytes."""

from __future__ import annotations

import pytest

from sandbox_kernel.wrapped.relaying import outside
from sandbox_kernel.wrapped.relaying.outside import LARGE, MOST, UnreadMessages


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
