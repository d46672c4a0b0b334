"""What no variable holds comes back with a saved session too, or is named: settings, registrations, patched modules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox_kernel import Sandbox, SandboxPolicy
from sandbox_kernel.session.opening.python_state import PythonSession

#: A change of a cell, and what to look at in the session and in a fork of it.
KEPT = {
    "import random; random.seed(1)": "random.random()",
    "import os; os.environ['AA'] = 'x'; _ = os.environ.pop('HOME')": "os.environ.get('AA'), os.environ.get('HOME')",
    "import time; os.environ['TZ'] = 'UTC-9'; time.tzset()": "time.timezone",
    "_ = os.umask(0o077)": "os.umask(0o077)",
    "import locale; _ = locale.setlocale(locale.LC_ALL, 'C')": "locale.setlocale(locale.LC_ALL)",
    "import warnings; warnings.simplefilter('error')": "warnings.filters[0]",
    "import decimal; decimal.getcontext().prec = 5": "decimal.Decimal(1) / 3",
    "import sys; sys.setrecursionlimit(5432)": "sys.getrecursionlimit()",
    "sys.path.insert(0, '/box/lib'); sys.path.remove(sys.path[-1])": "sys.path",
    "import signal\ndef h(*_): pass\n_ = signal.signal(signal.SIGUSR1, h)": "signal.getsignal(signal.SIGUSR1) is h",
    "import socket; socket.setdefaulttimeout(30)": "socket.getdefaulttimeout()",
    "import gc; gc.set_threshold(500)": "gc.get_threshold()",
    "import csv; csv.register_dialect('mine', delimiter=';')": "csv.get_dialect('mine').delimiter",
    "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); resource.setrlimit(resource.RLIMIT_NOFILE, (99, 99))": (
        "resource.getrlimit(resource.RLIMIT_NOFILE)"
    ),
    "import copyreg\nclass C: pass\ncopyreg.pickle(C, lambda c: (C, ()))": "C in copyreg.dispatch_table",
    "import collections.abc\nclass S: pass\n_ = collections.abc.Sequence.register(S)": (
        "issubclass(S, collections.abc.Sequence)"
    ),
    "import logging; logging.basicConfig(level=10, format='%(message)s!'); logging.getLogger('x').setLevel(20)": (
        "logging.root.level, len(logging.root.handlers), logging.root.handlers[0].formatter._fmt, "
        "logging.getLogger('x').level"
    ),
    "import json; json.dumps = lambda *_, **__: 'patched'": "json.dumps(1)",
    "import string; string.extra = 5; setattr(string, 'more', 6)": "string.extra, string.more",
    "import fractions; fractions.Fraction.double = property(lambda self: self * 2)": "fractions.Fraction(1, 4).double",
    "import builtins; builtins.foo = 3": "foo",
    "open('own.py', 'w').write('n = 0\\ndef up():\\n    global n\\n    n += 1\\n    return n\\n'); import own; _ = own.up()": (
        "own.up()"
    ),
    "%precision 2": "3.14159",
    "__all__ = ['a']; typed: int = 3": "__all__, __annotations__",
    "os.chdir('/tmp')": "os.getcwd()",
}
#: A change of a cell that a file cannot hold, and the name by which it is told.
NAMED = {
    "import atexit\n@atexit.register\ndef bye(): pass": "atexit.register",
    "from codecs import register_error\nregister_error('mine', lambda e: ('?', e.end))": "codecs.register_error",
    "get_ipython().events.register('post_run_cell', lambda *_: None)": "IPython.events",
    "get_ipython().display_formatter.formatters['text/plain'].for_type(complex, lambda *_: None)": (
        "IPython.display_formatter"
    ),
    "%alias hello echo hello": "IPython.alias_manager",
    "import string; string.now = (n for n in ())": "string.now",
    "import os; os.mkdir('/tmp/gone'); os.chdir('/tmp/gone')": "os.getcwd",
    "import tempfile; place = tempfile.mkdtemp()": "tempfile.gettempdir",
}


@pytest.fixture
def session() -> Iterator[PythonSession]:
    with Sandbox(SandboxPolicy().allow_process_spawn().with_env("GIVEN", "by the policy")) as box:
        made = box.session()
        assert isinstance(made, PythonSession)
        yield made


def run(session: PythonSession, code: str) -> str:
    result = session.run(code, timeout=60)
    assert result.ok, result.stderr
    return str(result.displays[-1].data["text/plain"]) if result.displays else ""


def test_settings_of_the_process_and_of_libraries_are_the_same_after_a_load(
    session: PythonSession,
) -> None:
    for code in KEPT:
        run(session, code)
    with session.fork() as other:
        assert other.restored is not None
        assert not other.restored.lost, other.restored
        assert not other.restored.changed, other.restored
        with other.fork() as second:
            for code, seen in KEPT.items():
                expected = run(session, seen)
                assert run(other, seen) == expected, code
                assert run(second, seen) == expected, f"after a second save: {code}"


def test_settings_of_numpy_pandas_and_matplotlib_are_the_same_after_a_load(session: PythonSession) -> None:
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    cells = {
        "import numpy as np; np.random.seed(1)": "np.random.rand()",
        "_ = np.seterr(all='raise'); np.set_printoptions(precision=2)": "np.geterr(), np.array([1.23456])",
        "import pandas as pd; pd.set_option('display.max_rows', 3)": "pd.get_option('display.max_rows')",
        "@pd.api.extensions.register_dataframe_accessor('geo')\nclass Geo:\n    def __init__(self, df): self.n = len(df)": (
            "pd.DataFrame({'a': [1]}).geo.n"
        ),
        "import matplotlib; matplotlib.rcParams['lines.linewidth'] = 9": "matplotlib.rcParams['lines.linewidth']",
    }
    for code in cells:
        run(session, code)
    with session.fork() as other:
        assert not other.restored.lost, other.restored
        for code, seen in cells.items():
            assert run(other, seen) == run(session, seen), code


def test_what_a_file_cannot_hold_of_libraries_is_named_as_lost(session: PythonSession) -> None:
    for code in NAMED:
        run(session, code)
    with session.fork() as other:
        assert set(other.restored.lost) == set(NAMED.values())
        assert "lost: atexit.register (" in str(other.restored)


def test_a_random_number_that_a_cell_takes_again_does_not_move_the_row_of_numbers(session: PythonSession) -> None:
    run(session, "import random; random.seed(5)\ndef number(): return random.random()")
    run(session, "numbers = (n for n in [number()])")
    with session.fork() as other:
        assert other.restored.recomputed == ("numbers",)
        assert run(other, "random.random()") == run(session, "random.random()")


def test_rights_of_a_session_do_not_go_into_its_file(session: PythonSession) -> None:
    session.allow(env={"TOKEN": "secret"})
    run(session, "import os; os.environ['OWN'] = '1'")
    with session.fork() as other:
        assert run(other, "os.environ.get('TOKEN'), os.environ['OWN'], os.environ['GIVEN']") == (
            "(None, '1', 'by the policy')"
        )


def test_what_is_different_after_a_load_is_said(session: PythonSession) -> None:
    pytest.importorskip("pandas")
    run(
        session, "import functools\n@functools.lru_cache\ndef square(n): return n * n\n_ = square(3); unused = [square]"
    )
    run(session, "import numpy as np, pandas as pd; df = pd.DataFrame(np.zeros((2, 2))); v = df.values; same = df")
    run(session, "m = np.matrix([[1, 2]]); row = m[0]; alias = m; a = np.arange(4); b = a[1:]; column = df[0]")
    run(
        session,
        "o = np.array([1, None, 'x'], object); back = o[::-1]; np.save('f.npy', a); mapped = np.load('f.npy', 'r+')",
    )
    run(
        session,
        "open('own.py', 'w').write('def f(): return 1\\n'); import own; open('own.py', 'w').write('def f(): return 2\\n')",
    )
    with session.fork() as other:
        assert not other.restored.lost, other.restored
        assert other.restored.changed == {
            "own": "its file was changed after it was imported, and is imported as it is now",
            "v": "it no longer shares memory with column, df, same",
            "df": "it no longer shares memory with v",
            "same": "it no longer shares memory with v",
            "m": "it no longer shares memory with row",
            "row": "it no longer shares memory with alias, m",
            "alias": "it no longer shares memory with row",
            "column": "it no longer shares memory with v",
            "square": "the cache of square is empty",
            "unused": "the cache of square is empty",
            "mapped": "it is in memory and no longer mapped to its file",
        }
        assert run(other, "back[0] = 'new'; o.tolist(), np.shares_memory(a, b), alias is m") == (
            "([1, None, 'new'], True, True)"
        )
        assert "changed: square (the cache of square is empty)" in str(other.restored)


def test_a_module_imported_after_a_change_of_directory_is_there_after_a_load(session: PythonSession) -> None:
    run(session, "import os; open('first.py', 'w').write('n = 1'); import first")
    run(session, "os.mkdir('sub'); os.chdir('sub'); open('second.py', 'w').write('n = 2'); import second")
    with session.fork() as other:
        assert not other.restored.lost, other.restored
        assert run(other, "first.n, second.n, os.path.basename(os.getcwd())") == "(1, 2, 'sub')"
    run(session, "open('first.py', 'w').write('n = 3')")
    with session.fork() as other:
        assert set(other.restored.lost) == {"first", "first.n"}, "another file would be imported in its place"


def test_a_default_timeout_of_sockets_does_not_end_the_session(session: PythonSession) -> None:
    run(session, "import socket; socket.setdefaulttimeout(0.05); s = socket.socket()")
    run(session, "import time; time.sleep(0.2)")
    assert run(session, "s.fileno() > 0") == "True", "the same worker still waits for cells"


def test_a_replaced_json_dumps_does_not_end_the_session(session: PythonSession) -> None:
    run(session, "import json; json.dumps = json.loads = None")
    assert run(session, "json.dumps") == ""
    assert [node.alive for node in session.history()][-1]


def test_a_file_of_the_form_before_holds_variables_only_and_is_loaded(session: PythonSession) -> None:
    code = """
import io, json, pickle, sandbox_guest.python.saving.save_state as state
data, space = pickle.dumps([7]), {}
header = {'version': state.VERSION.replace('form 3', 'form 2'), 'parts': [len(data)], 'stored': ['x'], 'lost': {}}
header.update(places=[], front=[], directory='')
report, _ = state.load(io.BytesIO(json.dumps(header).encode() + b'\\n' + data), space)
"""
    run(session, code)
    assert run(session, "space, report") == "({'x': [7]}, {'stored': ['x'], 'lost': {}, 'changed': {}})"


def test_an_object_that_cannot_even_be_looked_at_is_lost_alone(session: PythonSession) -> None:
    run(session, "class Proxy:\n    @property\n    def __class__(self): raise RuntimeError('no context')")
    run(session, "import string, sys; string.proxy = sys.modules['odd'] = Proxy(); x = [1]; string.mine = lambda: x")
    run(session, "string.Formatter.proxy = Proxy()")
    with session.fork() as other:
        assert set(other.restored.lost) == {"string.proxy", "string.Formatter.proxy"}, other.restored
        assert run(other, "x, string.mine()") == "([1], [1])"
