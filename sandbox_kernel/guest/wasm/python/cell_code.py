"""How the code of a cell is compiled and run inside a Python guest: ``%pip`` lines, the last value, ``await``.

Runs inside the guest, where it is the module ``_cells``; no module imports it.
"""

import ast
import codeop
import inspect
import re
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio

_AWAITS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_PIP = re.compile(r"(\s*)[%!]pip\b(.*)")
#: The event loop of the session, once a cell has awaited something.
_loops: list["asyncio.AbstractEventLoop"] = []


def compiled(source: str, name: str) -> list[types.CodeType]:
    """Compile a cell: its statements and, if it ends with an expression, that one, whose value is shown."""
    tree = _parsed(source, name)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        return [compile(tree, name, "exec", _AWAITS)]
    tree.body.pop()
    return [compile(tree, name, "exec", _AWAITS), compile(ast.Expression(last.value), name, "eval", _AWAITS)]


def _parsed(source: str, name: str) -> ast.Module:
    """Parse a cell; a line ``%pip …`` where no statement can stand is a call of ``pip``."""
    lines = source.split("\n")
    while True:
        try:
            return ast.parse("\n".join(lines), name)
        except SyntaxError as error:
            at = (error.lineno or 0) - 1
            magic = _PIP.match(lines[at]) if 0 <= at < len(lines) else None
            if magic is None:
                raise
            lines[at] = f"{magic[1]}__import__('_sandbox').pip({magic[2].strip()!r})"


def evaluated(parts: list[types.CodeType], main: dict[str, object]) -> object:
    """Run the parts of a cell and return the value of the last; if one awaits, all run in the session's event loop."""
    if not any(code.co_flags & inspect.CO_COROUTINE for code in parts):
        return [eval(code, main) for code in parts][-1]  # noqa: S307 - that is what it is for
    import asyncio

    if not _loops or _loops[-1].is_closed():
        _loops[:] = [asyncio.new_event_loop()]
    loop = _loops[-1]
    task = loop.create_task(_awaited(parts, main))
    try:
        return loop.run_until_complete(task)
    except BaseException:
        # An interrupt can come between two steps of the task.
        if not task.done():
            task.cancel()
            loop.run_until_complete(asyncio.wait([task], timeout=1))
        raise


async def _awaited(parts: list[types.CodeType], main: dict[str, object]) -> object:
    value = None
    for code in parts:
        value = eval(code, main)  # noqa: S307 - that is what it is for
        if code.co_flags & inspect.CO_COROUTINE:
            value = await value
    return value


def whole(source: str) -> object:
    """Return something if the source is a whole cell, None if more must follow; raises for one that cannot be run."""
    compiler = codeop.CommandCompiler()
    compiler.compiler.flags |= _AWAITS
    plain = "\n".join(_PIP.sub(r"\1pass", line) for line in source.split("\n"))
    return compiler(plain, "cell", "exec")


def touch() -> None:
    """Compile and run a cell that does nothing, in a namespace of its own."""
    evaluated(compiled("x = 1\nx", "cell 0"), {})
