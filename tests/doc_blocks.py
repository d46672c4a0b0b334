"""Runs the Python blocks of a page of docs/: what stands there is what was run."""

import ast
import asyncio
import inspect
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, heading: str) -> list[str]:
    """The Python blocks below a heading of a page, up to the next one of the same level."""
    text = (DOCS / page).read_text()
    _, found, after = text.partition(f"\n{heading}\n")
    assert found, f"{page} has no heading {heading!r}"
    return _BLOCK.findall(re.split(r"^## ", after, maxsplit=1, flags=re.MULTILINE)[0])


def run_block(code: str, **given: object) -> dict[str, object]:
    """Run a block, which may await, with the names that it takes as given. Returns all its names."""
    space: dict[str, object] = dict(given)
    compiled = compile(code, "<block>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def main() -> None:
        waiting = eval(compiled, space)
        if inspect.isawaitable(waiting):
            await waiting

    asyncio.run(main())
    return space
