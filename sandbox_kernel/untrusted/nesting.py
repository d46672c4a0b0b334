"""How deep markup nests, found out in one pass before any parser sees it.

HTML parsers take time quadratic in the number of open elements (measured with nh3: 140 kB of ``<h1><b>`` repeated take
3.6 s, half a megabyte a minute), and browsers stop nesting at 512 anyway.
"""

from __future__ import annotations

import re

from sandbox_kernel.untrusted import Refused

MAX_DEPTH = 256
_TAG = re.compile(r"<(/?)([A-Za-z][^\s/<>]{0,64})([^<>]*)")
#: Elements that have no end, or whose end people leave out and the parser finds.
_SELF_ENDING_NAMES = (
    "area base br col embed hr img input link meta source track wbr p li dt dd tr td th thead tbody tfoot colgroup "
    "option optgroup"
)
_SELF_ENDING = frozenset(_SELF_ENDING_NAMES.split())


def check_nesting(markup: str, *, is_xml: bool) -> None:
    """Refuse markup with more elements open at once than any page needs. Only in XML does ``<b/>`` end itself."""
    opened: dict[str, int] = {}
    depth = 0
    for match in _TAG.finditer(markup):
        name = match[2].lower()
        if name in _SELF_ENDING and not is_xml:
            continue
        if match[1]:
            # An end tag closes only what was opened: ``<b></p>`` repeated leaves every <b> open.
            if opened.get(name, 0):
                opened[name] -= 1
                depth -= 1
        elif not (is_xml and match[3].endswith("/")):
            opened[name] = opened.get(name, 0) + 1
            depth += 1
            if depth > MAX_DEPTH:
                raise Refused(f"nested deeper than {MAX_DEPTH} elements")
