"""Runs once inside the Python guest of a WebAssembly session and defines how it runs cells. No module imports it.

It is part of an image, so loading it changes nothing yet; ``begin`` is called once, when a session starts.
It exchanges messages with the worker through the letter box (``wasi.py``): one JSON request, one JSON answer.
"""

import ast
import builtins
import codeop
import contextlib
import csv
import importlib
import inspect
import json
import keyword
import linecache
import os
import re
import sys
import traceback
import types
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio


_main = sys.modules["__main__"].__dict__
_MOST_MATCHES = 500
#: Modules whose frames stand above those of a cell.
_NOT_SHOWN = (__name__, "asyncio.base_events", "asyncio.futures", "asyncio.tasks")


#: Where ``%pip`` installs.
_PACKAGES = "/box/packages"
#: The letter that asks for an order.
_NEXT = b'{"op": "next"}'
#: The descriptor that is the letter box; set by the program that loads this.
_post = -1


def _send(**letter: object) -> dict[str, object]:
    answer: dict[str, object] = json.loads(_posted(_packed(letter)) or b"{}")
    return answer


def _tell(**letter: object) -> None:
    """Send a letter that needs no answer: reading one takes as long as sending it."""
    _put(_packed(letter))


def _packed(letter: dict[str, object]) -> bytes:
    return json.dumps(letter).encode("utf-8", "backslashreplace")


def _put(data: bytes) -> None:
    """Send a letter to the embedder."""
    data += b"\n"
    while data:
        data = data[os.write(_post, data) :]


def _posted(data: bytes) -> bytes:
    """Send a letter to the embedder and return its answer."""
    _put(data)
    # The embedder fills every read, so one that is not full is the last.
    parts = [os.read(_post, 1 << 16)]
    while len(parts[-1]) == 1 << 16:
        parts.append(os.read(_post, 1 << 16))
    return b"".join(parts)


def _input(prompt: object = "", /) -> str:
    sys.stdout.flush()
    answer = _send(op="input", prompt=str(prompt))
    if answer.get("value") is None:
        raise EOFError("no input is available here")
    return str(answer["value"])


def _bundle(value: object) -> dict[str, str]:
    data = {"text/plain": repr(value)}
    for mime, name in (("text/html", "_repr_html_"), ("text/latex", "_repr_latex_"), ("image/svg+xml", "_repr_svg_")):
        draw = getattr(type(value), name, None)
        if draw is not None:
            try:
                drawn = draw(value)
            except Exception:  # a value that has no picture is still shown as text
                drawn = None
            if isinstance(drawn, str):
                data[mime] = drawn
    return data


def display(*values: object) -> None:
    """Show values, as ``display`` of a notebook does."""
    for value in values:
        _show(_bundle(value), "display")


def _show(data: dict[str, str], kind: str) -> None:
    _flush()
    _tell(op="show", data=data, kind=kind)


def _show_figures() -> None:
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return
    import base64
    import io

    for number in pyplot.get_fignums():
        out = io.BytesIO()
        pyplot.figure(number).savefig(out, format="png", bbox_inches="tight")
        _show({"text/plain": "<Figure>", "image/png": base64.b64encode(out.getvalue()).decode()}, "display")
    pyplot.close("all")


class PackageError(Exception):
    """Raised when ``%pip`` cannot do what it is asked; says what to do instead. A cell shows it without frames."""


class NativePackage(PackageError):
    """Raised for a package that has native code."""


PackageError.__module__ = NativePackage.__module__ = "builtins"


def pip(line: str) -> None:
    """Do what ``%pip …`` asks for. pip itself runs beside this guest; packages lie in the work folder."""
    import shlex

    try:
        command, *rest = shlex.split(line, comments=True) or [""]
        if command == "install":
            _install(rest)
        elif command in ("list", "freeze"):
            for name, found in sorted(_installed().items()):
                print(f"{name}=={found.version}")
        elif command == "uninstall":
            for name in rest:
                if not name.startswith("-"):
                    _uninstall(name)
        else:
            raise PackageError(f"%pip {command or '…'} is not there; this sandbox has %pip install, uninstall and list")
    except (OSError, ValueError) as error:
        raise PackageError(f"%pip {line[:200]} failed: {error}") from None


def _install(words: list[str]) -> None:
    import platform
    import shutil

    paths, index = [path for path in sys.path if path != "/box"], os.environ.get("PIP_INDEX_URL", "")
    version = platform.python_version()
    answer = _send(op="pip", words=words, folder=os.getcwd(), paths=paths, index=index, version=version)
    if "error" in answer:
        raise (NativePackage if answer.get("native") else PackageError)(str(answer["error"]))
    before, folder = _installed(), str(answer["folder"])
    try:
        new = {_plain(one.name): one.version for one in importlib.metadata.distributions(path=[folder])}
        for name in new.keys() & before.keys():
            if _is_ours(before[name]):
                _remove(before[name])
        tops = [name.removesuffix(".py") for name in os.listdir(folder)]
        _move(folder, _PACKAGES)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if _PACKAGES not in sys.path:
        sys.path.append(_PACKAGES)
    importlib.invalidate_caches()
    for name in map(_plain, answer["names"]):  # type: ignore[call-overload]
        if name not in new and name in before:
            print(f"Requirement already satisfied: {name} {before[name].version}")
    if new:
        print("Successfully installed " + " ".join(f"{name}-{version}" for name, version in sorted(new.items())))
    if own := [name for name in tops if name in sys.stdlib_module_names]:
        print(f"note: these are modules that Python has too, and Python's own are imported: {', '.join(own[:5])}")
    if new.keys() & before.keys() and any(name in sys.modules for name in tops):
        print("note: another version was imported before; restart the session to use the new one")


def _installed() -> dict[str, "importlib.metadata.Distribution"]:
    import importlib.metadata

    found: dict[str, importlib.metadata.Distribution] = {}
    paths = [path for path in sys.path if path not in ("/box", _PACKAGES)]
    for one in importlib.metadata.distributions(path=[_PACKAGES, *paths]):
        if one.metadata["Name"]:
            found.setdefault(_plain(one.name), one)
    return found


def _plain(name: str) -> str:
    """Return the name of a package as all tools compare it, of a requirement or a file name too."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", os.path.basename(name))[0]).lower()


def _is_ours(found: "importlib.metadata.Distribution") -> bool:
    return str(found.locate_file("")).rstrip("/") == _PACKAGES


def _uninstall(name: str) -> None:
    found = _installed().get(_plain(name))
    if found is None or not _is_ours(found):
        where = "is not installed" if found is None else "is part of this Python"
        raise PackageError(f"{name[:100]} {where}; %pip list shows what is installed")
    told = f"{found.name}-{found.version}"
    _remove(found)
    importlib.invalidate_caches()
    print(f"Successfully uninstalled {told}")


def _remove(found: "importlib.metadata.Distribution") -> None:
    """Remove the files that a package lists as its own, and the folders that are empty then."""
    folders = set[str]()
    # Not ``found.files``: it asks whether each is there, and a name that leads out of the folder is refused.
    for row in csv.reader((found.read_text("RECORD") or "").splitlines()):
        path = os.path.normpath(f"{_PACKAGES}/{row[0]}")
        if path.startswith(f"{_PACKAGES}/"):
            with contextlib.suppress(OSError):
                os.unlink(path)
            while (path := os.path.dirname(path)) != _PACKAGES:
                folders.add(path)
    for folder in sorted(folders, key=len, reverse=True):
        with contextlib.suppress(OSError):  # something else lies there: a cache, or a file of another package
            os.rmdir(folder)


def _move(source: str, target: str) -> None:
    """Move a folder to where one may be already: its files go beside those of the other, or replace them."""
    if not os.path.isdir(source) or not os.path.isdir(target):
        os.replace(source, target)
        return
    for name in os.listdir(source):
        _move(f"{source}/{name}", f"{target}/{name}")


def run(source: str, number: int) -> None:
    """Run one cell; the last message says how it ended."""
    name = f"cell {number}"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    try:
        value = _evaluated(_compiled(source, name), _main)
        if value is not None:
            _main["_"] = value
            _show(_bundle(value), "result")
        _show_figures()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        _finish(status="error" if code else "ok", exit_code=code)
    except BaseException as error:
        _fail(error)
    else:
        _finish(status="ok", exit_code=0)


def _fail(error: BaseException) -> None:
    # A SyntaxError names its place itself and needs no frames, nor does an error of %pip.
    needs_none = isinstance(error, SyntaxError | PackageError)
    frames = None if needs_none else error.__traceback__
    while frames is not None and frames.tb_frame.f_globals.get("__name__") in _NOT_SHOWN:
        frames = frames.tb_next
    lines = "".join(traceback.format_exception(type(error), error, frames)).splitlines()
    told = {"ename": type(error).__name__, "evalue": str(error)[:2000], "traceback": lines[:100]}
    limit = {"limit": "memory"} if isinstance(error, MemoryError) else {}
    status = "interrupted" if isinstance(error, KeyboardInterrupt) else "error"
    _finish(status=status, exit_code=1, error=told, **limit)


def _finish(**end: object) -> None:
    _flush()
    _tell(op="done", **end)


def _flush() -> None:
    """Write what was printed. A stream that the user has closed or replaced by something else is not ours to mend."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def ask(what: str, source: str, position: int) -> None:
    """Answer a question about code; runs none of it except attribute lookups on existing names."""
    answer: dict[str, object] = {}
    # An object may raise when it is looked at.
    with contextlib.suppress(BaseException):
        answer = _answer_to(what, source, position)
    _tell(op="answer", answer=answer)


def _answer_to(what: str, source: str, position: int) -> dict[str, object]:
    answer: dict[str, object] = {}
    if what == "is_complete":
        try:
            whole = _whole(source)
            answer = {"status": "complete" if whole is not None else "incomplete", "indent": ""}
        except (SyntaxError, ValueError, OverflowError):
            answer = {"status": "invalid", "indent": ""}
    else:
        before = source[:position]
        start = len(before)
        while start and (before[start - 1].isidentifier() or before[start - 1] in "._0123456789"):
            start -= 1
        chain = before[start:]
        if what == "complete":
            answer = {"matches": _completions(chain), "cursor_start": start, "cursor_end": position, "metadata": {}}
        elif chain:
            end = position
            while end < len(source) and (source[end].isalnum() or source[end] == "_"):
                end += 1
            name, *path = (chain + source[position:end]).split(".")
            value = _main.get(name, getattr(builtins, name, None))
            for part in path:
                value = getattr(value, part, None)
            if value is not None:
                text = f"{value!r:.500}\n\n{getattr(value, '__doc__', None) or ''}"
                answer = {"data": {"text/plain": text}}
    return answer


def _completions(chain: str) -> list[str]:
    """Return what can stand at the end of ``name.attribute.wor``; private names only when the word begins like one."""
    *path, word = chain.split(".")
    if path:
        value = _main.get(path[0], getattr(builtins, path[0], None))
        for part in path[1:]:
            value = getattr(value, part, None)
        known = dir(value)
    else:
        known = [*_main, *dir(builtins), *keyword.kwlist]
    fitting = {name for name in known if name.startswith(word) and (word or not name.startswith("_"))}
    return sorted(".".join([*path, name]) for name in fitting)[:_MOST_MATCHES]


def names() -> None:
    """Report how many variables the user has made."""
    _tell(op="names", count=sum(not name.startswith("_") for name in _main))


def offer(listing: list[list[str]]) -> None:
    """Make ``import host`` work for these functions; ``functions/calling.py`` is a module here already."""
    calling = sys.modules["host.calling"]
    sys.modules["host"] = calling.make_module(calling.Calls(lambda message: _posted(b"host " + message)), listing)


def renew() -> None:
    """Draw random numbers anew: this memory is a copy, and other copies would draw the same ones."""
    for name in ("random", "numpy.random"):
        # What the user has broken is for the next cell to say.
        with contextlib.suppress(BaseException):
            sys.modules[name].seed()
    _tell(op="renewed")


def begin(env: dict[str, str]) -> None:
    """Make this interpreter that of a session with these variables."""
    sys.modules["_boot"].wake(["python"], env)
    renew()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    builtins.input = _input
    builtins.display = display  # type: ignore[attr-defined]
    os.chdir("/box")
    sys.dont_write_bytecode = True  # files that the user did not make
    sys.path.insert(0, "/box")
    # Where %pip installs; last, so that no package takes the place of a module of Python itself.
    if _PACKAGES not in sys.path:
        sys.path.append(_PACKAGES)


def release() -> None:
    """Close files that only caches hold: ``importlib.metadata`` keeps the zip of the packages open."""
    metadata = sys.modules.get("importlib.metadata")
    if metadata is not None:
        metadata.FastPath.__new__.cache_clear()  # importlib.invalidate_caches of this version leaves it
    sys.modules["_boot"].gc.collect()
    _tell(op="released")


def turn() -> None:
    """Do what the worker asks for; the entry of every call."""
    order: dict[str, object] = json.loads(_posted(_NEXT))
    functions: tuple[Callable[..., None], ...] = (begin, offer, run, names, ask, renew, release)
    calls = {function.__name__: function for function in functions}
    arguments = order["arguments"]
    assert isinstance(arguments, list)
    calls[str(order["call"])](*arguments)


_AWAITS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
_PIP = re.compile(r"(\s*)[%!]pip\b(.*)")
#: The event loop of the session, once a cell has awaited something.
_loops: list["asyncio.AbstractEventLoop"] = []


def _compiled(source: str, name: str) -> list[types.CodeType]:
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


def _evaluated(parts: list[types.CodeType], main: dict[str, object]) -> object:
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
    finally:
        # Another task's exit or interrupt leaves it unfinished: its rest must not run with a later cell.
        if not task.done():
            task.cancel()
            loop.run_until_complete(asyncio.wait([task], timeout=1))


async def _awaited(parts: list[types.CodeType], main: dict[str, object]) -> object:
    value = None
    for code in parts:
        value = eval(code, main)  # noqa: S307 - that is what it is for
        if code.co_flags & inspect.CO_COROUTINE:
            value = await value
    return value


def _whole(source: str) -> object:
    """Return something if the source is a whole cell, None if more must follow; raises for one that cannot be run."""
    compiler = codeop.CommandCompiler()
    compiler.compiler.flags |= _AWAITS
    plain = "\n".join(_PIP.sub(r"\1pass", line) for line in source.split("\n"))
    return compiler(plain, "cell", "exec")
