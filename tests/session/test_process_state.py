"""What of a session is saved beside its public variables: its process as far as a file can hold it, the rest by name."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox, SandboxPolicy
from sandbox_kernel.guest.python import process_state
from sandbox_kernel.session.python_state import PythonSession

#: A change of a cell, and what to look at in the session and in a fork of it.
KEPT = {
    "import random; random.seed(1)": "random.random()",
    "import numpy as np; np.random.seed(1)": "float(np.random.rand())",
    "import os; os.environ['AA'] = 'x'; _ = os.environ.pop('HOME')": "os.environ.get('AA'), os.environ.get('HOME')",
    "import time; os.environ['TZ'] = 'UTC-9'; time.tzset()": "time.timezone",
    "import sys; sys.path.insert(0, '/box/lib'); sys.path.append('/box/more')": "sys.path",
    "__all__ = ['a']; typed: int = 3": "__all__, __annotations__",
    "os.chdir('/tmp')": "os.getcwd()",
}
#: A change of a cell that a file cannot hold, and the name by which it is told.
NAMED = {
    "import atexit\n@atexit.register\ndef bye(): pass": "atexit.register",
    "from codecs import register_error\nregister_error('mine', lambda e: ('?', e.end))": "codecs.register_error",
    "import warnings; warnings.simplefilter('ignore')": "warnings.simplefilter",
    "import logging as log; log.basicConfig(level=10)": "logging.basicConfig",
    "import signal; _ = signal.signal(signal.SIGUSR1, lambda *_: None)": "signal.signal",
    "import pandas as pd; pd.set_option('display.max_rows', 3)": "pandas.set_option",
    "import numpy as np; np.set_printoptions(precision=2)": "numpy.set_printoptions",
    "import matplotlib.pyplot as plt; plt.rcParams['lines.linewidth'] = 9": "matplotlib.pyplot.rcParams",
    "import json; json.dumps = lambda *_, **__: 'patched'": "json.dumps",
    "import fractions; fractions.Fraction.double = property(lambda self: self * 2)": "fractions.Fraction.double",
    "import string; setattr(string, 'more', 6)": "string.more",
    "get_ipython().events.register('post_run_cell', lambda *_: None)": "IPython.events",
    "%alias hello echo hello": "IPython.alias",
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
    return str(result.displays[-1].data["text/plain"]) if result.displays else result.stdout


@pytest.mark.slow
def test_directory_environment_places_of_modules_and_random_numbers_are_the_same_after_a_load(
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


@pytest.mark.slow
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


def test_arrays_that_no_longer_share_memory_are_named_and_small_ones_take_no_large_one_along(
    session: PythonSession, tmp_path: Path
) -> None:
    run(session, "import numpy as np; a = np.arange(4); b = a[1:]; alias = a; alone = np.zeros(3)")
    run(session, "small = np.ones(4_000_000)[:9]; np.save('f.npy', alone); mapped = np.load('f.npy', 'r+')")
    session.save(tmp_path / "s")
    assert (tmp_path / "s").stat().st_size < 1_000_000
    with session.fork() as other:
        assert not other.restored.lost, other.restored
        assert other.restored.changed == {
            "a": "it no longer shares memory with b",
            "alias": "it no longer shares memory with b",
            "b": "it no longer shares memory with a, alias",
            "mapped": "it is in memory and no longer mapped to its file",
        }
        assert run(other, "alias is a, b.tolist(), small.nbytes") == "(True, [1, 2, 3], 72)"
        assert "changed: b (it no longer shares memory with a, alias)" in str(other.restored)


def test_a_module_imported_before_or_after_a_change_of_directory_is_there_after_a_load(session: PythonSession) -> None:
    run(session, "import os; open('first.py', 'w').write('class M: pass'); import first; m = first.M()")
    run(session, "os.mkdir('sub'); os.chdir('sub'); open('second.py', 'w').write('n = 2'); import second")
    with session.fork() as other:
        assert not other.restored.lost, other.restored
        assert run(other, "type(m) is first.M, second.n, os.path.basename(os.getcwd())") == "(True, 2, 'sub')"
    run(session, "os.chdir('/'); os.remove('/box/first.py') if os.path.exists('/box/first.py') else None")
    run(session, "open('/tmp/third.py', 'w').close(); import sys; sys.path.append('/tmp'); import third")
    with session.fork() as other:
        assert set(other.restored.lost) == {
            *("first", "m"),  # the file was removed
            *("third", "tempfile.gettempdir"),  # it lies where nothing is saved
            "second",  # it lies in a folder that is not searched any more
        }
        assert run(other, "os.getcwd()") == "'/'", "a directory outside is kept too"


def test_names_that_begin_with_an_underscore_are_saved(session: PythonSession) -> None:
    run(session, "_cache = {1: 2}\ndef _helper(): return _cache[1]\ndef main(): return _helper()")
    run(session, "1 + 1")
    run(session, "_lock = __import__('threading').Lock()")
    with session.fork() as other:
        assert run(other, "print(main())") == "2\n"
        assert sorted(other.restored.stored) == ["_cache", "_helper", "main"], "and nothing of IPython's"
        assert list(other.restored.lost) == ["_lock"]


def test_a_long_chain_of_objects_is_saved(session: PythonSession) -> None:
    run(
        session, "class Link: pass\nchain = None\nfor number in range(3000):\n    x = Link(); x.next = chain; chain = x"
    )
    run(session, "endless = []\nfor number in range(200_000): endless = [endless]")
    with session.fork() as other:
        assert list(other.restored.lost) == ["endless"]
        assert run(other, "count = 0\nwhile chain: chain = chain.next; count += 1\nprint(count)") == "3000\n"


def test_a_default_timeout_of_sockets_does_not_end_the_session(session: PythonSession) -> None:
    run(session, "import socket; socket.setdefaulttimeout(0.05); s = socket.socket()")
    run(session, "import time; time.sleep(0.2)")
    assert run(session, "s.fileno() > 0") == "True", "the same worker still waits for cells"


def test_a_replaced_json_dumps_does_not_end_the_session(session: PythonSession) -> None:
    run(session, "import json; json.dumps = json.loads = None")
    assert run(session, "json.dumps") == ""
    assert [node.alive for node in session.history()][-1]


def test_an_object_that_cannot_even_be_looked_at_is_lost_alone(session: PythonSession) -> None:
    run(session, "class Proxy:\n    @property\n    def __class__(self): raise RuntimeError('no context')")
    run(session, "import sys; proxy = sys.modules['odd'] = Proxy(); x = [1]; mine = lambda: x")
    with session.fork() as other:
        assert {"Proxy", "proxy", "sys.modules"} == set(other.restored.lost), other.restored
        assert run(other, "x, mine()") == "([1], [1])"


def test_packages_of_an_environment_below_tmp_are_there_for_every_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_state, "_INSTALLED", ("/tmp/clone/.venv/",))
    assert process_state.lasts("/tmp/clone/.venv/lib/pandas/__init__.py", "/box")
    assert not process_state.lasts("/tmp/mine.py", "/box")
