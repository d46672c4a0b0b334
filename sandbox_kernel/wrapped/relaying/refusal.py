"""Stands in for a kernel that did not come up: every cell says why, instead of a kernel that dies again and again.

A front end that starts a kernel waits for its answer before it shows anything. So this answers, and lives until the
front end ends it; a log that nobody reads would be the only other place for the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import zmq

from sandbox_kernel import __version__
from sandbox_kernel.wrapped.relaying.outside import OutsideSockets
from sandbox_kernel.wrapped.relaying.own_messages import PROTOCOL, OwnMessages
from sandbox_kernel.wrapped.relaying.wire import from_json, split

#: The longest wait between two checks that the front end still lives, in milliseconds.
_CHECK_MS = 1000


def refuse(outside: OutsideSockets, error: Mapping[str, object], still_wanted: Callable[[], bool]) -> None:
    """Answer front ends until one shuts the kernel down or none is there any more.

    Args:
        outside: The sockets for front ends.
        error: The content of the error that every cell gets.
        still_wanted: Returns False when the front end is gone.

    """
    own, sockets = OwnMessages(outside), outside.by_channel
    poller = zmq.Poller()
    for sock in sockets.values():
        poller.register(sock, zmq.POLLIN)
    while still_wanted():
        ready = dict(poller.poll(_CHECK_MS))
        if sockets["iopub"] in ready:
            own.welcome(sockets["iopub"].recv())
        if sockets["hb"] in ready:
            sockets["hb"].send_multipart(sockets["hb"].recv_multipart())
        for channel in ("control", "shell", "stdin"):
            if sockets[channel] in ready and not _answer(outside, own, channel, error):
                return


def _answer(outside: OutsideSockets, own: OwnMessages, channel: str, error: Mapping[str, object]) -> bool:
    """Answer one request; returns False when it was the last one."""
    packet = split(outside.by_channel[channel].recv_multipart())
    if packet is None or not outside.address.signer.verifies(packet.signature, packet.parts):
        return True
    header = from_json(packet.parts[0]) or {}
    kind = str(header.get("msg_type"))
    if not kind.endswith("_request"):
        return True
    own.publish("status", header, {"execution_state": "busy"})
    content: Mapping[str, object] = {"status": "error", **error}
    if kind == "kernel_info_request":
        content = _facts(str(error["evalue"]))
    elif kind == "execute_request":
        own.publish("error", header, error)
        content = {**content, "execution_count": 0}
    elif kind == "shutdown_request":
        content = {"status": "ok", "restart": bool((from_json(packet.parts[3]) or {}).get("restart"))}
    own.send(channel, packet.routing, kind.replace("_request", "_reply"), header, content)
    own.publish("status", header, {"execution_state": "idle"})
    return kind != "shutdown_request"


def _facts(words: str) -> dict[str, object]:
    return {
        "status": "ok",
        "protocol_version": PROTOCOL,
        "implementation": "sandbox-kernel",
        "implementation_version": __version__,
        "language_info": {"name": "text", "version": "", "mimetype": "text/plain", "file_extension": ".txt"},
        "banner": words,
    }
