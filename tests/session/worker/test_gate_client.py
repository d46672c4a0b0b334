"""Orders to the gate of a session: sent at once where there is room, whole where there is none, and never in vain."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox_kernel.jail.gate_messages import frame
from sandbox_kernel.session.worker.gate_client import GateClient, GateLost


@pytest.fixture
def line() -> Iterator[tuple[GateClient, socket.socket]]:
    """A client whose gate is the other end of the line."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    jail: Any = SimpleNamespace(control=ours)
    with ours, theirs:
        yield GateClient(jail), theirs


@pytest.mark.parametrize("size", [10, 5_000_000], ids=["small", "larger than the socket's room"])
def test_an_order_arrives_whole_and_the_line_waits_for_nothing_afterwards(
    line: tuple[GateClient, socket.socket], size: int
) -> None:
    client, gate = line
    wanted = frame({"op": "drop", "cells": [], "wait": "x" * size, "blobs": []})
    arrived = bytearray()

    def read() -> None:
        while len(arrived) < len(wanted):
            arrived.extend(gate.recv(1 << 16))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    client._order({"op": "drop", "cells": [], "wait": "x" * size})
    reader.join(60)
    assert bytes(arrived) == wanted
    assert not client.jail.control.getblocking()


def test_a_gate_that_is_gone_is_noticed_by_the_order(line: tuple[GateClient, socket.socket]) -> None:
    client, gate = line
    gate.close()
    with pytest.raises(GateLost):
        client._order({"op": "kill"})
