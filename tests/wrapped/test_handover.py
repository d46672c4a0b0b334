"""How the host gets connections to a kernel behind Landlock: it connects to paths that hostile programs may have made."""

from __future__ import annotations

import os
import socket
from types import SimpleNamespace

import pytest

from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.jail.core.walls import Places
from sandbox_kernel.wrapped.handover import OfferedPaths


@pytest.fixture
def jail(tmp_path):
    """The folder for temporary files of a jail, our end of its channel, and the handover."""
    inside, outside = socket.socketpair()
    inner = tmp_path / "tmp"
    inner.mkdir()
    handover = OfferedPaths(SimpleNamespace(channel=outside, uid=None, places=Places(tmp=str(inner))))
    yield inner, inside, handover
    inside.close()
    outside.close()


def listener(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    sock.listen()
    return sock


def test_a_socket_of_the_kernel_is_connected_and_the_jail_is_told(jail):
    inner, inside, handover = jail
    with listener(inner / "kernel-5002"):
        inside.send(b"\1")
        channel, sock = handover.take()
        sock.close()
    assert (channel, inside.recv(9)) == ("iopub", b"y")


@pytest.mark.parametrize("way", ["link", "second name", "not there", "file", "nobody listens"])
def test_what_is_no_socket_of_the_kernel_is_not_connected(jail, tmp_path, way):
    inner, inside, handover = jail
    offered, hosts = inner / "kernel-5001", tmp_path / "host.sock"
    with listener(hosts) as host:
        host.setblocking(False)
        if way == "link":
            offered.symlink_to(hosts)
        elif way == "second name":
            os.link(hosts, offered)
        elif way == "file":
            offered.write_text("")
        elif way == "nobody listens":
            listener(offered).close()
        inside.send(b"\0")
        assert handover.take() is None
        assert inside.recv(9) == b"n"
        with pytest.raises(BlockingIOError):
            host.accept()


def test_anything_else_ends_the_kernel(jail):
    _, inside, handover = jail
    inside.send(b"\x09")
    with pytest.raises(EnforcerFailed, match="something else than a connection"):
        handover.take()
