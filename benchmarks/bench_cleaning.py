"""How long does the host take to clean an output, and does the time grow faster than the output?

    python -m benchmarks.bench_cleaning [--rounds 3]

Measures the worst known inputs of each type, at a quarter, a half and the whole of the accepted size, up to 1 MB; and
1 MB of the same input, which may be refused. Times are CPU seconds.
"""

from __future__ import annotations

import argparse
import base64
import sys
import time
from collections.abc import Callable, Mapping

from benchmarks.markdown_section import table
from benchmarks.measure import machine
from sandbox_kernel.untrusted.sanitize import sanitize_bundle

MEGABYTE = 1 << 20
Shape = Callable[[int], object]


def repeated(unit: str, *, before: str = "", after: str = "") -> Shape:
    """Repeat a unit up to this many characters, between two fixed texts."""
    return lambda size: before + unit * max(1, (size - len(before) - len(after)) // len(unit)) + after


def numbered(form: str, *, before: str = "", after: str = "") -> Shape:
    """Do the same with a unit that differs each time."""
    return lambda size: before + "".join(form.format(n) for n in range(size // len(form.format(99999)))) + after


def jpeg(filler: bytes) -> Shape:
    """Make a JPEG without a frame header."""
    return lambda size: base64.b64encode(b"\xff\xd8\xff" + filler * (size * 3 // 4 // len(filler))).decode()


SHAPES: Mapping[str, Mapping[str, Shape]] = {
    "text/html": {
        "attributes of one tag": numbered(" a{}=1", before="<b", after=">"),
        "tags with many attributes": repeated("<b " + " ".join(f"a{n}" for n in range(60)) + ">x</b>"),
        "words between the cells of a table": repeated("x<b></b>", before="<table>"),
        "rows between words": repeated("x<tr>", before="<table>" * 30),
        "open elements": repeated("<p><b>"),
        "paragraphs below open elements": repeated("<p>x", before="".join(f"<b title={n}>" for n in range(110))),
        "cells": repeated("<tr><td>", before="<table>"),
        "links": repeated('<a href="http://a">x</a>'),
        "styles": numbered('<b style="color:#{0:06d};width:{0}px;a:b;c:d"></b>'),
        "character references": repeated("&notin;"),
        "unknown character references": repeated("&" + "a" * 33),
        "beginnings of formulas": repeated("${"),
        "commands of formulas": repeated("\\href "),
        "pictures": repeated('<img src="data:image/png;base64,AAAA">'),
        "unclosed comments": repeated("<!--"),
        "text": repeated("word "),
    },
    "text/markdown": {
        "prose": repeated("Some *prose* with `code` and a [link](http://x.y).\n\n"),
        "open brackets": repeated("["),
        "open pictures": repeated("!["),
        "open emphasis": repeated("*a **a "),
        "both kinds of emphasis": repeated("**a*"),
        "rows of a table": repeated("|x|y|\n", before="|a|b|\n|-|-|\n"),
        "rows of a wide table": repeated("|x\n", before="|a" * 500 + "\n" + "|-" * 500 + "\n"),
        "headings": repeated("# a\n"),
        "nested lists": repeated("- "),
        "definitions": numbered("[a{}]: b\n"),
        "addresses": repeated("<http://a>"),
        "backticks": repeated("` `` "),
    },
    "text/latex": {"braces": repeated("{", before="$"), "formulas": repeated("$x$ ")},
    "image/svg+xml": {
        "shapes": repeated('<path d="M0 0"/>', before="<svg>", after="</svg>"),
        "attributes of one element": numbered(' a{}="1"', before="<svg><path", after="/></svg>"),
        "one long path": repeated("M0 0", before='<svg><path d="', after='"/></svg>'),
        "styles": numbered('<g style="fill:#{0:06d};stroke:red"/>', before="<svg>", after="</svg>"),
        "text with backslashes": repeated("\\a ", before="<svg><text>", after="</text></svg>"),
    },
    "text/plain": {
        "escape sequences": repeated("\x1b]"),
        "colours": repeated("\x1b[m"),
        "control characters": repeated("\x01"),
    },
    "image/jpeg": {"padding": jpeg(b"\xff"), "segments": jpeg(b"\xff\xe0\0\2")},
    "application/json": {
        "values": lambda size: [0] * (size // 3),
        "keys": lambda size: {str(n): n for n in range(size // 16)},
    },
}


def seconds(mime: str, value: object, rounds: int) -> tuple[float, bool]:
    """Return the least CPU time of a few tries, and whether the value was accepted."""
    best, shown = float("inf"), False
    for _ in range(rounds):
        began = time.process_time()
        bundle = sanitize_bundle({mime: value}, {})
        best = min(best, time.process_time() - began)
        shown = not any(" was not shown" in said for said in bundle.removed)
    return best, shown


def largest_shown(mime: str, shape: Shape) -> int:
    """Return the largest accepted size up to 1 MB, within a third."""
    size = MEGABYTE
    while size > 1000 and not seconds(mime, shape(size), 1)[1]:
        size = size * 2 // 3
    return size


def row(mime: str, name: str, shape: Shape, rounds: int) -> tuple[list[str], float]:
    """One kind of input of one MIME type."""
    whole, is_shown = seconds(mime, shape(MEGABYTE), rounds)
    size = MEGABYTE if is_shown else largest_shown(mime, shape)
    parts = [seconds(mime, shape(size // part), rounds)[0] for part in (4, 2, 1)]
    outcome = "shown" if is_shown else "refused"
    cells = [mime, name, f"{size >> 10} KB", *(f"{part * 1e3:.0f}" for part in parts), f"{whole * 1e3:.0f}, {outcome}"]
    return cells, max(whole, *parts)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found = []
    for mime, shapes in SHAPES.items():
        for name, shape in shapes.items():
            found.append(row(mime, name, shape, options.rounds))
            print(*found[-1][0], sep=", ", file=sys.stderr, flush=True)
    print(f"{machine()}\n\n### Milliseconds to check an output, for the worst shapes that are known\n")
    print(
        table(
            ["type", "shape", "accepted up to", "a quarter", "half", "all of it", "1 MB"], [cells for cells, _ in found]
        )
    )
    print(f"\nThe slowest takes {max(worst for _, worst in found) * 1e3:.0f} ms.")


if __name__ == "__main__":
    main()
