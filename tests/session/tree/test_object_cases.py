"""Objects of many packages through undo, redo, checkout, fork, save and load.

The classes are those of the public coverage list of Kishu (``kishu/coverage``) that are installed here, and what no file
can hold. Each case declares a variable, changes it in place, and has an expression that tells both states apart.
"""

from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.session.session import Session

#: Name: declaration, change in place, what to look at.
CASES = {
    "numpy_array": ("import numpy as np; {v} = np.arange(6)", "{v}[3] = 10", "{v}.tolist()"),
    "numpy_view": ("{v} = np.zeros(4); {v}_base = {v}[:2]", "{v}_base[0] = 7", "{v}.tolist()"),
    "numpy_random": ("{v} = np.random.default_rng(1)", "{v}.random()", "{v}.bit_generator.state['state']['state']"),
    "pandas_series": ("import pandas as pd; {v} = pd.Series([1, 2, 3])", "{v}[2] = 0", "{v}.tolist()"),
    "pandas_frame": ("{v} = pd.DataFrame(dict(a=[1, 2]))", "{v}.at[0, 'a'] = 9", "{v}.a.tolist()"),
    "scikit_learn": (
        "from sklearn.linear_model import LinearRegression; {v} = LinearRegression()",
        "{v}.fit([[0], [1]], [1, 3])",
        "float({v}.coef_[0]) if hasattr({v}, 'coef_') else None",
    ),
    "matplotlib_axes": (
        "import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt; {v} = plt.figure().add_subplot()",
        "{v}.set_xlabel('Length')",
        "{v}.get_xlabel()",
    ),
    "dictionary": ("{v} = dict(a=[1, 2.0, 3 + 4j], b=(b'bytes', None))", "{v}['a'].append(4)", "repr({v})"),
    "ordered": (
        "import collections; {v} = collections.OrderedDict(a=1)",
        "{v}.move_to_end('a'); {v}['b'] = 2",
        "list({v})",
    ),
    "deque": ("{v} = collections.deque([1, 2], maxlen=2)", "{v}.append(3)", "list({v})"),
    "counter": ("{v} = collections.Counter('aab')", "{v}.update('c')", "sorted({v}.items())"),
    "function": ("def {v}(n=[0]): n[0] += 1; return n[0]", "{v}()", "{v}.__defaults__[0][0]"),
    "class_with_state": ("class {v}: seen = []", "{v}.seen.append(1)", "{v}.seen"),
    "instance": ("class Point: pass\n{v} = Point(); {v}.x = 1", "{v}.x = 2", "{v}.x"),
    "random": ("import random; {v} = random.Random(3)", "{v}.random()", "{v}.getstate()[1][-1]"),
    "decimal": ("import decimal; {v} = [decimal.Decimal('1.1')]", "{v}.append(decimal.Decimal(2))", "repr({v})"),
    "path": ("import pathlib; {v} = [pathlib.Path('a')]", "{v}.append(pathlib.Path('b'))", "repr({v})"),
    "text_buffer": ("import io; {v} = io.StringIO('abc')", "{v}.read(2)", "{v}.tell()"),
    # Native code makes such a module itself: it has no loader (qiskit's circuits refer to one).
    "part_of_native_module": (
        "import pyexpat; {v} = [pyexpat.errors]",
        "{v}.append(1)",
        "({v}[0].__name__, len({v}))",
    ),
    "iterator": ("{v} = iter([1, 2, 3])", "next({v})", "{v}.__reduce__()[-1]"),
}
#: The same, for what lives in a process only.
UNSTORABLE = {
    "generator": ("{v} = (n for n in range(9)); {v}_seen = []", "{v}_seen.append(next({v}))", "{v}_seen"),
    "hash": ("import hashlib; {v} = hashlib.sha256(b'a')", "{v}.update(b'b')", "{v}.hexdigest()"),
    "open_file": ("{v} = open('f', 'w+'); {v}.write('abc'); {v}.seek(0)", "{v}.read(2)", "{v}.tell()"),
    "sqlite_memory": (
        "import sqlite3; {v} = sqlite3.connect(':memory:'); {v}.execute('create table t (n)')",
        "{v}.execute('insert into t values (1)')",
        "{v}.execute('select count(*) from t').fetchone()[0]",
    ),
    "context": ("import contextvars; {v} = contextvars.ContextVar('v', default=1)", "{v}.set(2)", "{v}.get()"),
}
ALL = {**CASES, **UNSTORABLE}


def cell(part: int, cases: dict[str, tuple[str, str, str]]) -> str:
    return "\n".join(case[part].replace("{v}", f"v_{name}") for name, case in cases.items())


def looked(session: Session, cases: dict[str, tuple[str, str, str]]) -> dict[str, str]:
    body = "\n".join(f"print({name!r}, repr({case[2].replace('{v}', f'v_{name}')}))" for name, case in cases.items())
    result = session.run(body, timeout=60)
    assert result.ok, result
    return dict(line.split(" ", 1) for line in result.stdout.splitlines())


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_every_object_goes_back_and_forward_and_into_a_file(tmp_path: Path) -> None:
    with Sandbox() as box, box.session(checkpoints=10, memory_mb=1024) as session:
        for part, name in ((0, "declared"), (1, "changed")):
            result = session.run(cell(part, ALL), timeout=120)
            assert result.ok, result
            session.checkpoint(name)
        changed = looked(session, ALL)
        session.undo(2)
        declared = looked(session, ALL)
        assert [name for name in ALL if declared[name] == changed[name]] == [], "each case tells its states apart"
        session.checkout("declared")
        session.redo(1)
        session.checkout("changed")
        assert looked(session, ALL) == changed
        session.checkout("declared")
        assert looked(session, ALL) == declared
        session.checkout("changed")
        storable = {name: changed[name] for name in CASES}
        report = session.save(tmp_path / "s")  # type: ignore[attr-defined]
        missing = {name.removeprefix("v_") for name in report.lost} & set(CASES)
        assert missing == set(), report.lost
        with session.fork() as fork:  # type: ignore[attr-defined]
            assert looked(fork, CASES) == storable
    with Sandbox() as other, other.load_session(tmp_path / "s") as again:
        assert looked(again, CASES) == storable
