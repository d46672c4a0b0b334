"""Runs inside CPython while its image is made, and defines how a program is run in the image. No module imports it.

Runs on Python 3.12 and 3.15, as the module ``_boot``. ``python_image.py`` runs it, the small one to its first exit
handler: then the interpreter is whole and no Python function is running, so its memory can be entered again. The host
finds its functions and ``turn`` (of ``cell_boot.py``) by the addresses in the file that this program writes.
"""

import atexit
import gc
import json
import logging
import os
import random
import sys
import time
import zipimport
from types import ModuleType

#: Modules that programs often import; they are in the image already.
_PRELOADED = """abc argparse array ast asyncio base64 binascii bisect bz2 calendar cmath codeop collections contextlib
copy csv dataclasses datetime decimal difflib encodings.ascii encodings.idna encodings.latin_1 enum fractions functools
glob graphlib hashlib heapq html importlib.resources importlib.util inspect io itertools json keyword linecache locale
logging math numbers operator pathlib pickle pprint queue random re secrets shutil signal sqlite3 statistics
string struct tempfile textwrap time tokenize traceback types typing unittest unittest.mock urllib.parse uuid warnings
xml.etree.ElementTree zipfile zlib numpy pandas matplotlib.pyplot"""
#: Where the embedder puts the arguments and the environment of a program, after their size.
buffer = bytearray()
_BOOTED, _OUT_OF_MEMORY = 77, 0x1000001
_baked = set[str]()
_threading: ModuleType | None = None


def settle() -> None:
    """Make the interpreter as it is before a program; called once, when the run that booted it has ended."""
    atexit.unregister(os._exit)
    if _threading is not None:
        sys.modules["threading"] = _threading
    sys.path_importer_cache.clear()
    sys.path[:] = [place for place in sys.path if place]
    _baked.update(sys.modules)
    with open("/box/settled", "w") as file:
        file.write("settled")
    gc.collect()
    gc.freeze()


def wake(argv: list[str], environ: dict[str, str]) -> None:
    """Set what a new process would have: arguments, variables, random numbers, the time of its start."""
    os.environ.clear()
    os.environ.update(environ)
    if hasattr(time, "tzset"):
        time.tzset()
    random.seed()
    logging._startTime = time.time()  # type: ignore[attr-defined]
    sys.orig_argv[:] = argv
    sys.argv[:] = argv[1:] or [""]
    sys.path[:0] = [place for place in os.environ.get("PYTHONPATH", "").split(":") if place]
    # The packages of the sandbox; last, so that none takes the place of a module of Python itself.
    for name in sorted(os.listdir("/wheels")) if os.path.isdir("/wheels") else ():
        if not name.endswith(".whl"):
            continue
        try:
            files = zipimport.zipimporter(f"/wheels/{name}")._files  # type: ignore[attr-defined]
        except zipimport.ZipImportError:
            print(f"the wheel {name} is damaged; download it again", file=sys.stderr)
            continue
        # zipimport knows a package without __init__.py by the entry of its folder, which many wheels leave out.
        for path in [*files]:
            for at in (at for at, sign in enumerate(path) if sign == "/"):
                files.setdefault(path[: at + 1], None)
        sys.path.append(f"/wheels/{name}")


def program() -> None:
    """Run the file that the arguments name, as ``python FILE …`` does; does not return."""
    given = buffer[4 : 4 + int.from_bytes(buffer[:4], "little")].decode("utf-8", "surrogateescape")
    count, *words = given.split("\0")
    argv, env = words[: int(count)], words[int(count) :]
    wake(argv, dict(word.split("=", 1) for word in env))
    code: object = 0
    try:
        _run(sys.argv[0], sys.modules["__main__"].__dict__)
    except SystemExit as end:
        code = _flushed(0) if end.code is None else end.code
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException as error:
        code = _OUT_OF_MEMORY if isinstance(error, MemoryError) else 1
        # The frames of this file are not the program's.
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_globals.get("__name__") == __name__:
            trace = trace.tb_next
        sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        del error, trace, sys.last_type, sys.last_value, sys.last_traceback
    assert isinstance(code, int)
    os._exit(((_finished(code) + (1 << 31)) & 0xFFFFFFFF) - (1 << 31))


def _run(name: str, main: dict[str, object]) -> None:
    sys.path.insert(0, os.path.dirname(name))
    with open(name, "rb") as file:
        source = file.read()
    main["__file__"], main["__cached__"] = name, None
    exec(compile(source, name, "exec", dont_inherit=True), main)


def _finished(code: int) -> int:
    """Do what an interpreter does at its end, as far as a program can see it; returns the exit code."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    code = _flushed(code)
    sys.modules["__main__"].__dict__.clear()
    for name in [name for name in sys.modules if name not in _baked]:
        vars(sys.modules.pop(name)).clear()
    gc.collect()
    return _flushed(code)


def _flushed(code: int) -> int:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, ValueError):
            pass
        except OSError:
            code = 120
    return code


def _boot(buffer_bytes: int) -> None:
    global _threading
    # What modules read while they are imported: how figures are drawn, and that there is no time zone but tzdata's.
    os.environ.update(MPLBACKEND="Agg", MPLCONFIGDIR="/tmp/matplotlib", PYTHONTZPATH="")
    for name in _PRELOADED.split():
        try:
            __import__(name)
        except ImportError:  # this build of CPython does not have it
            pass
    buffer.extend(bytes(buffer_bytes))
    for at in range(64):  # written byte by byte, so that the host finds this mark in one place only
        buffer[at] = at * 37 + 11 & 255
    with open("/box/boot.json", "w") as file:
        json.dump({entry.__name__: id(entry) for entry in (settle, program, sys.modules["_sandbox"].turn)}, file)
    # Hidden for a moment: the interpreter would call its shutdown.
    _threading = sys.modules.pop("threading", None)
    # The last one to be registered is called first, before the interpreter takes anything down.
    atexit.register(os._exit, _BOOTED)
