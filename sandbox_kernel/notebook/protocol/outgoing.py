"""Makes the frames of outgoing messages as ``jupyter_client.session`` does, with fewer steps for each.

A cell sends six messages, each an answer to the same request. The library packs that request's header again for each,
makes an encoder for each part, and reads its settings through traits. Headers and signatures are still the library's.
"""

# mypy: disallow-untyped-calls=False, disallow-any-unimported=False
# pyzmq and jupyter_client have no types here.

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import zmq
from jupyter_client.jsonutil import json_default
from jupyter_client.session import DELIM, json_packer, msg_header

_encode = json.JSONEncoder(default=json_default, ensure_ascii=False, allow_nan=False).encode
#: A plain number: sums of pyzmq's own flags are enumerations, which take longer than sending a frame.
_MORE = int(zmq.SNDMORE)
_NO_HEADER: Mapping[str, object] = {}
_send = zmq.backend.Socket.send


def pack(part: object) -> bytes:
    """Return a part of a message as ``json_packer`` does."""
    try:
        return _encode(part).encode("utf8", errors="surrogateescape")
    except (TypeError, ValueError):
        packed: bytes = json_packer(part)
        return packed


class Outgoing:
    """Sends messages of one session, from any thread. ``lock`` is held to send, not to encode, which may take long."""

    def __init__(self, session: Any, lock: threading.RLock | None = None) -> None:
        self._session = session
        self._lock = lock or threading.RLock()
        # Another packer is chosen where a faster one is installed.
        self._pack: Callable[[object], bytes] = pack if session.pack is json_packer else session.pack
        self._name, self._user, self._copied_below = session.session, session.username, session.copy_threshold
        self._numbers = itertools.count()
        self._parent: tuple[object, bytes] = (None, self._pack({}))

    def send(
        self,
        socket: Any,
        kind: str,
        content: Mapping[str, object],
        parent: Mapping[str, object] | None,
        ident: bytes | Sequence[bytes] | None,
        metadata: Mapping[str, object] | None,
        buffers: Sequence[bytes] | None,
    ) -> None:
        """Send one message; see ``jupyter_client.session.Session.send``. A forked copy of this process sends none."""
        session, packed = self._session, self._pack
        if session.pid != os.getpid():
            return
        parts = [
            packed(msg_header(f"{self._name}_{session.pid}_{next(self._numbers)}", kind, self._user, self._name)),
            self._packed_parent(parent),
            packed(dict(metadata or {})),
            packed(dict(content)),
        ]
        idents = [ident] if isinstance(ident, bytes) else ident or ()
        frames = [*idents, DELIM, session.sign(parts), *parts, *(buffers or ())]
        last = len(frames) - 1
        with self._lock:
            if socket.closed:
                return
            if max(map(len, frames)) < self._copied_below:
                for place, part in enumerate(frames):
                    _send(socket, part, 0 if place == last else _MORE, True, False)
            else:
                socket.send_multipart(frames, copy=False)

    def _packed_parent(self, parent: Mapping[str, object] | None) -> bytes:
        """Return the packed header of a request; the last one is kept, because several answers follow each other."""
        header = parent.get("header", parent) if parent else _NO_HEADER
        known = self._parent
        if known[0] is not header:
            known = self._parent = (header, self._pack(header))
        return known[1]
