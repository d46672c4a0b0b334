"""The outside of a wrapped kernel: the five sockets that front ends connect to, as their connection file says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import zmq

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.wrapped.relaying.waiting import UnreadMessages
from sandbox_kernel.wrapped.relaying.wire import Signer, make_signer
from sandbox_kernel.wrapped.way_out import CHANNELS

_TYPES = {"shell": zmq.ROUTER, "control": zmq.ROUTER, "stdin": zmq.ROUTER, "hb": zmq.ROUTER, "iopub": zmq.XPUB}
#: How long the last messages may take to leave when the kernel has ended.
LINGER_MS = 2000


@dataclass(frozen=True)
class OutsideAddress:
    """Where front ends connect, and the key that signs their messages."""

    transport: str
    ip: str
    ports: Mapping[str, int]
    signer: Signer
    curve: tuple[bytes, bytes] | None = field(default=None, repr=False)

    def endpoint(self, channel: str) -> str:
        """Return the address of one channel."""
        mark = ":" if self.transport == "tcp" else "-"
        return f"{self.transport}://{self.ip}{mark}{self.ports[channel]}"


def read_address(path: str) -> OutsideAddress:
    """Read a connection file. Raises ``InvalidRequest`` when it is not usable."""
    try:
        with open(path, encoding="utf-8") as file:
            given = json.load(file)
        ports = {channel: int(given[f"{channel}_port"]) for channel in CHANNELS}
        public, secret = given.get("curve_publickey"), given.get("curve_secretkey")
        return OutsideAddress(
            transport=str(given.get("transport", "tcp")),
            ip=str(given.get("ip", "127.0.0.1")),
            ports=ports,
            signer=make_signer(str(given.get("key", "")), str(given.get("signature_scheme") or "hmac-sha256")),
            curve=(public.encode(), secret.encode()) if public and secret else None,
        )
    except OSError as error:
        raise InvalidRequest(f"connection file {path!r} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidRequest(f"connection file {path!r} is not one of Jupyter: {error}") from None


class OutsideSockets:
    """The five bound sockets, by channel."""

    def __init__(self, address: OutsideAddress) -> None:
        self.address = address
        self._context = zmq.Context()
        self.by_channel: dict[str, zmq.Socket[bytes]] = {}
        self.waiting = UnreadMessages()
        for channel in CHANNELS:
            sock = self._context.socket(_TYPES[channel])
            sock.linger = LINGER_MS
            if channel == "iopub":
                # Every subscription is reported, so that each gets a welcome.
                sock.setsockopt(zmq.XPUB_VERBOSE, 1)
            else:
                # A front end that connects again gets its old name back.
                sock.setsockopt(zmq.ROUTER_HANDOVER, 1)
            if address.curve is not None:
                sock.curve_publickey, sock.curve_secretkey = address.curve
                sock.curve_server = True
            sock.bind(address.endpoint(channel))
            self.by_channel[channel] = sock

    def send(self, channel: str, frames: Sequence[bytes]) -> None:
        """Send a message to front ends."""
        self.waiting.send(self.by_channel[channel], frames)

    def close(self) -> None:
        """Send what waits, then close."""
        for sock in self.by_channel.values():
            sock.close()
        self._context.term()
