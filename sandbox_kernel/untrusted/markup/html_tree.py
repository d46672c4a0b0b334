"""Writes well-nested HTML from tags in any order, so that a browser builds exactly the elements written here.

This is the second half of an HTML parser, for the elements that ``html`` allows. Each tag takes constant time. Browsers
repair wrong nesting (text between table cells, ``<b><p></b>``) by moving elements, which is slow; this repairs in
place: the text gets a cell of its own, the late end tag is left out.
"""

from __future__ import annotations

from sandbox_kernel.untrusted import ContentRefused

MAX_DEPTH = 128
MAX_ELEMENTS = 50_000
#: How many open elements are searched for the one that an end tag closes.
_NEAR = 24

VOID = frozenset(("br", "col", "hr", "img", "input", "source"))
_BLOCK_NAMES = (
    "blockquote center details div dd dl dt figcaption figure h1 h2 h3 h4 h5 h6 hr li ol p pre section summary table ul"
)
_INLINE_NAMES = (
    "a abbr audio b bdi bdo cite code del dfn em i ins kbd label mark progress q s samp small span strong sub sup tt u "
    "var video"
)
_ENDS_PARAGRAPH = frozenset(_BLOCK_NAMES.split())
_INLINE = frozenset(_INLINE_NAMES.split())
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_ROW_GROUPS = frozenset(("thead", "tbody", "tfoot"))
_TABLE_PARTS = _ROW_GROUPS | {"caption", "colgroup", "col", "tr", "td", "th"}
#: Elements that may contain only parts of a table.
_NO_TEXT = _ROW_GROUPS | {"table", "tr", "colgroup"}
#: End tags inside one of these cannot close elements outside of it.
_SCOPES = frozenset(("table", "td", "th", "caption"))
_SIBLINGS = {"li": frozenset(("li",)), "dd": frozenset(("dd", "dt")), "dt": frozenset(("dd", "dt"))}


class Tree:
    """Writes HTML. Call ``start``, ``end`` and ``text`` for each token, then ``finish``, which returns the HTML."""

    def __init__(self) -> None:
        self._written: list[str] = []
        self._open: list[str] = []
        self._elements = 0
        #: The open tables and cells, and for each the number of open elements in it by name.
        self._scopes = [""]
        self._counts: list[dict[str, int]] = [{}]

    def start(self, name: str, attributes: str) -> None:
        """Open an element; ``attributes`` is written unchanged."""
        if name in _TABLE_PARTS:
            if not self._make_room_in_table(name):
                return
        else:
            if self._top() in _NO_TEXT:
                self._open_cell()
            if name in _ENDS_PARAGRAPH and self._counts[-1].get("p"):
                self._close_to("p")
            if name in _HEADINGS and self._top() in _HEADINGS:
                self._close()
            if name == "a" and self._counts[-1].get("a"):
                self._close_to("a")
            if name in _SIBLINGS:
                self._close_sibling(_SIBLINGS[name])
        if name in VOID:
            self._written.append(f"<{name}{attributes}>")
        else:
            self._push(name, attributes)

    def end(self, name: str) -> None:
        """Close the nearest open element of this name, unless there is none or it is outside of the open cell."""
        if name in _INLINE:
            near = self._open[: -_NEAR - 1 : -1]
            for above, open_name in enumerate(near):
                if open_name == name:
                    self._close_many(above + 1)
                if open_name == name or open_name not in _INLINE:
                    return
        elif name in _TABLE_PARTS or name == "table":
            self._end_in_table(name)
        elif self._counts[-1].get(name):
            self._close_to(name)

    def text(self, html: str, *, is_space: bool) -> None:
        """Add text that is escaped already."""
        if not is_space and self._top() in _NO_TEXT:
            self._open_cell()
        self._written.append(html)

    def finish(self) -> str:
        """Close all open elements and return the HTML."""
        self._close_many(len(self._open))
        return "".join(self._written)

    def _top(self) -> str:
        return self._open[-1] if self._open else ""

    def _push(self, name: str, attributes: str = "") -> None:
        if len(self._open) >= MAX_DEPTH:
            raise ContentRefused(f"it is nested deeper than {MAX_DEPTH} elements")
        self._elements += 1
        if self._elements > MAX_ELEMENTS:
            raise ContentRefused(f"it has more than {MAX_ELEMENTS} elements")
        self._written.append(f"<{name}{attributes}>")
        self._open.append(name)
        counts = self._counts[-1]
        counts[name] = counts.get(name, 0) + 1
        if name in _SCOPES:
            self._scopes.append(name)
            self._counts.append({})

    def _close(self) -> None:
        name = self._open.pop()
        if name in _SCOPES:
            self._scopes.pop()
            self._counts.pop()
        self._counts[-1][name] -= 1
        self._written.append(f"</{name}>")

    def _close_many(self, count: int) -> None:
        for _ in range(count):
            self._close()

    def _close_to(self, name: str) -> None:
        while self._open[-1] != name:
            self._close()
        self._close()

    def _close_sibling(self, names: frozenset[str]) -> None:
        """Close the previous item of a list: ``<li>`` ends it, but not an item that contains the list."""
        if not any(self._counts[-1].get(name) for name in names):
            return
        for above, name in enumerate(self._open[: -_NEAR - 1 : -1]):
            if name in names:
                self._close_many(above + 1)
            if name in names or not (name in _INLINE or name in ("div", "p")):
                return

    # -- tables ------------------------------------------------------------------------------------------------------

    def _leave_cell(self) -> None:
        """Close the open cell or caption, if any; the table is then the innermost scope."""
        if self._scopes[-1] != "table":
            self._close_to(self._scopes[-1])

    def _close_up_to(self, *names: str) -> None:
        while self._open[-1] not in names:
            self._close()

    def _make_room_in_table(self, name: str) -> bool:
        """Close and open elements so that a part of a table can start; returns False outside of a table."""
        if len(self._scopes) == 1:
            return False
        self._leave_cell()
        if name in ("td", "th"):
            if self._top() != "tr":
                self._make_room_in_table("tr")
                self._push("tr")
        elif name == "tr":
            self._close_up_to("thead", "tbody", "tfoot", "table")
            if self._top() == "table":
                self._push("tbody")
        elif name == "col":
            self._close_up_to("colgroup", "table")
            if self._top() == "table":
                self._push("colgroup")
        else:
            self._close_up_to("table")
        return True

    def _open_cell(self) -> None:
        self._make_room_in_table("td")
        self._push("td")

    def _end_in_table(self, name: str) -> None:
        scope = self._scopes[-1]
        if len(self._scopes) == 1 or name == "col":
            return
        if name in ("td", "th", "caption"):
            if name == scope:
                self._close_to(name)
            return
        if scope != "table" and not (name == "table" or self._counts[-2].get(name)):
            return
        self._leave_cell()
        if name == "table" or self._counts[-1].get(name):
            self._close_to(name)
