"""Texts and bytes of a session that our process keeps, counted for as long as anything refers to them.

A hostile session chooses what is kept, so values are kept as JSON text: objects made of it would take many times the
space. What several places share counts once, and equal large texts are kept once (each figure brings its library).
"""

from __future__ import annotations

import json
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

#: What one text takes besides its characters: objects, and its places in tables.
OVERHEAD = 256
_LARGE = 16 << 10

Content = TypeVar("Content", str, bytes)


class Counted(Generic[Content]):
    """A text, or bytes, of a store."""

    __slots__ = ("__weakref__", "_store", "content", "size")

    def __init__(self, store: CountedStore, content: Content, more: int = OVERHEAD) -> None:
        self._store: CountedStore = store
        self.content: Content = content
        self.size: int = len(content) + more
        store.held += self.size

    def __del__(self) -> None:
        self._store.held -= self.size


class CountedStore:
    """Counts what it keeps: ``held``, in bytes. For one thread at a time."""

    def __init__(self) -> None:
        self.held = 0
        self._large: WeakValueDictionary[str, Counted[str]] = WeakValueDictionary()

    def json(self, value: object) -> Counted[str]:
        """Keep a value as JSON text."""
        text = json.dumps(value, separators=(",", ":"))
        if len(text) < _LARGE:
            return Counted(self, text)
        known = self._large.get(text)
        if known is None:
            known = self._large[text] = Counted(self, text)
        return known

    def bytes(self, content: bytes, more: int = OVERHEAD) -> Counted[bytes]:
        """Keep bytes; ``more`` is what they take besides."""
        return Counted(self, content, more)
