from __future__ import annotations

import asyncio
import ssl

import httpcore
import pytest

from sandbox_kernel.net.client.pinned_backend import PinnedBackend, verifying_context
from sandbox_kernel.net.resolve import Pinned
from sandbox_kernel.net.rules.targets import parse_url


@pytest.mark.parametrize(("host", "port"), [("other.test", 80), ("site.test", 81), ("127.0.0.1", 80)])
def test_only_the_checked_target_can_be_connected_to(host: str, port: int):
    backend = PinnedBackend(Pinned(parse_url("http://site.test/"), ("127.0.0.1",)))
    with pytest.raises(httpcore.ConnectError, match="not the checked target"):
        asyncio.run(backend.connect_tcp(host, port))


def test_unix_sockets_are_never_connected_to():
    backend = PinnedBackend(Pinned(parse_url("http://site.test/"), ("127.0.0.1",)))
    with pytest.raises(httpcore.ConnectError):
        asyncio.run(backend.connect_unix_socket("/run/docker.sock"))


def test_tls_verifies_certificates_and_names():
    context = verifying_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
