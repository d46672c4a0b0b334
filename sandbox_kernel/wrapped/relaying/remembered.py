"""What a relay remembers of messages from front ends: signatures, where replies go, and what was to be completed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from sandbox_kernel.wrapped.cleaning.clean_replies import CompletionRequest
from sandbox_kernel.wrapped.relaying.wire import Packet, from_json

#: How many signatures and routes, and how many completion requests, are remembered.
_MOST = 65_536
_MOST_COMPLETIONS = 100


class Remembered:
    """Bounded: the oldest entries are forgotten."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()
        self._routes: OrderedDict[str, Sequence[bytes]] = OrderedDict()
        self._completions: OrderedDict[str, CompletionRequest] = OrderedDict()

    def is_new(self, signature: bytes) -> bool:
        """Whether a good signature was not seen before; it is remembered."""
        if signature in self._seen:
            return False
        self._seen[signature] = None
        if len(self._seen) > _MOST:
            self._seen.popitem(last=False)
        return True

    def note_route(self, message_id: str, routing: Sequence[bytes]) -> None:
        """Keep where the reply to a message goes. Kernels need not return a routing prefix of several parts."""
        self._routes[message_id] = routing
        if len(self._routes) > _MOST:
            self._routes.popitem(last=False)

    def route(self, message_id: str) -> Sequence[bytes] | None:
        """Return where the reply to a message goes; None when no front end sent it."""
        return self._routes.get(message_id)

    def forget_route(self, message_id: str) -> None:
        """The reply to a message came."""
        self._routes.pop(message_id, None)

    def note_completion(self, message_id: str, packet: Packet) -> None:
        """Keep what a front end wants to be completed."""
        content = from_json(packet.parts[3]) or {}
        code, position = content.get("code"), content.get("cursor_pos")
        if isinstance(code, str):
            place = position if isinstance(position, int) and 0 <= position <= len(code) else len(code)
            self._completions[message_id] = CompletionRequest(code, place)
            if len(self._completions) > _MOST_COMPLETIONS:
                self._completions.popitem(last=False)

    def take_completion(self, message_id: str) -> CompletionRequest | None:
        """Return what a reply completes, once."""
        return self._completions.pop(message_id, None)
