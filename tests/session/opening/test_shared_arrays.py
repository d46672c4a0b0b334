"""Arrays that share memory share it after save and fork; what pandas holds is its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox, SandboxPolicy
from sandbox_kernel.session.opening.python_state import PythonSession

#: Name: how it is made; a change; what to look at.
CASES = {
    "a_slice": ("a = np.arange(10); b = a[2:5]", "b[0] = 99", "a.tolist(), b.tolist()"),
    "views_without_their_base": ("c, d = (lambda x: (x[:6], x[4:]))(np.zeros(9))", "c[5] = 7", "d.tolist()"),
    "rows_and_columns": (
        "m = np.zeros((3, 4)); row = m[1]; column = m[:, 2]",
        "row[2] = 5; column[0] = 6",
        "m.tolist()",
    ),
    "backwards": ("e = np.arange(5); back = e[::-1]; every = e[::2]", "back[0] = 50; every[0] = 3", "e.tolist()"),
    "fortran": ("f = np.asfortranarray(np.arange(6.0).reshape(2, 3)); g = f.T", "g[2, 1] = 9", "f.tolist()"),
    "other_types": (
        "h = np.zeros(4, 'i4'); raw = h.view('u1'); part = h[1:2]",
        "raw[4] = 1",
        "h.tolist(), part.tolist()",
    ),
    "in_containers": (
        "i = np.zeros(3); box = {'it': [i[1:]], 'same': i}",
        "box['it'][0][0] = 4",
        "i.tolist(), box['same'] is i",
    ),
    "times": ("t = np.zeros(3, 'datetime64[D]'); u = t[1:]", "u[0] = np.datetime64('2020-01-01')", "str(t[1])"),
    "read_only": ("r = np.zeros(3); s = r[:]; s.flags.writeable = False", "r[1] = 2", "s.tolist(), s.flags.writeable"),
    "attributes": (
        "class Model: pass\nmodel = Model(); model.weights = np.zeros(4); model.bias = model.weights[3:]",
        "model.bias[0] = 8",
        "model.weights.tolist()",
    ),
    "objects": ("o = np.array([1, None, 'x'], object); p = o[:2]", "p[0] = 5", "p.tolist()"),
    "nothing": ("n = np.zeros(0); q = n[:]; z = np.array(3.0); y = z[...]", "z[...] = 4", "n.tolist(), float(y)"),
}


@pytest.fixture
def session() -> Iterator[PythonSession]:
    with Sandbox(SandboxPolicy().allow_process_spawn()) as box:
        made = box.session()
        assert isinstance(made, PythonSession)
        yield made


def run(session: PythonSession, code: str) -> str:
    result = session.run(code, timeout=60)
    assert result.ok, result.stderr
    return result.stdout


def test_arrays_that_share_memory_share_it_after_a_save(session: PythonSession) -> None:
    run(session, "import numpy as np\n" + "\n".join(made for made, _, _ in CASES.values()))
    change = "\n".join(change for _, change, _ in CASES.values())
    look = "\n".join(f"print({name!r}, {seen})" for name, (_, _, seen) in CASES.items())
    with session.fork() as other, other.fork() as third:
        assert not third.restored.lost, third.restored
        expected = run(session, f"{change}\n{look}").splitlines()
        assert run(other, f"{change}\n{look}").splitlines() == expected
        assert run(third, f"{change}\n{look}").splitlines() == expected, "a copy of a copy"


def test_frames_of_pandas_stay_independent(session: PythonSession) -> None:
    run(session, "import numpy as np, pandas as pd\ndf = pd.DataFrame({'x': [1, 2, 3], 'y': [4, 5, 6]})")
    run(
        session, "part = df[:2]; copy = df.copy(deep=False); column = df['x']; values = df.values; index = df.index[1:]"
    )
    change = "part.iloc[0, 0] = 9; copy.iloc[1, 1] = 8; column.iloc[2] = 7"
    look = "print([v.values.tolist() for v in (df, part, copy, column)], values.tolist(), list(index))"
    with session.fork() as other, other.fork() as third:
        expected = run(session, f"{change}\n{look}")
        assert run(other, f"{change}\n{look}") == expected
        assert run(third, f"{change}\n{look}") == expected


def test_small_views_of_a_large_array_do_not_take_it_along(session: PythonSession, tmp_path: Path) -> None:
    run(session, "import numpy as np\na, b, c = (lambda x: (x[:10], x[5:20], x[-5:]))(np.ones(4_000_000))")
    session.save(tmp_path / "s")
    assert (tmp_path / "s").stat().st_size < 1_000_000
    with session.fork() as other:
        assert run(other, "a[9] = 5; print(b[4], b.size, c.tolist())") == "5.0 15 [1.0, 1.0, 1.0, 1.0, 1.0]\n"
