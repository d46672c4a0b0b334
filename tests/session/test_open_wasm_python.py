"""Python sessions inside WebAssembly: state, packages, limits; forked, saved and loaded. Needs ``prepare science``."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import InvalidRequest, Sandbox, SandboxPolicy
from sandbox_kernel.backends.wasm.prepare import switches_of
from sandbox_kernel.backends.wasm.store import WasmStore
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.errors import BackendUnavailable, SessionError
from sandbox_kernel.languages.guest_catalogue import catalogue
from sandbox_kernel.model import Language
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.parse_cell import parse_cell
from sandbox_kernel.notebook.sessions import NotebookSessions
from sandbox_kernel.session.open_session import has_sessions, only_when_named
from sandbox_kernel.session.open_wasm import WasmSession, open_wasm_session, session_guests
from sandbox_kernel.session.take_state import take_state
from tests.conftest import REQUIRE_ALL, need
from tests.session.test_light_python import value

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def backend() -> WasmBackend:
    made = WasmBackend()
    if REQUIRE_ALL:
        made.prepare_science()  # begun before the tests; this waits for the rest of it
    need(
        made.is_prepared(session_guests(Language.PYTHON)[0]),
        "the science Python is not prepared: sandbox-kernel prepare science",
    )
    return made


@pytest.fixture
def session(backend: WasmBackend) -> Iterator[WasmSession]:
    with open_wasm_session(backend, "python") as opened:
        yield opened


def test_the_large_python_is_never_prepared_in_passing(tmp_path: Path) -> None:
    """Its compilation takes minutes."""
    large = catalogue()[Language.PYTHON].session
    assert large is not None
    with pytest.raises(BackendUnavailable, match="sandbox-kernel prepare science"):
        WasmBackend(store=WasmStore(str(tmp_path / "store"))).ready(large, switches_of(large))


@pytest.mark.slow
def test_the_scientific_packages_are_there_and_frames_and_figures_are_shown(session: WasmSession) -> None:
    shown = session.run("import pandas as pd; pd.DataFrame({'a': [1, 2]})", timeout=120)
    assert "<table" in str(shown.displays[-1].data["text/html"])
    drawn = session.run("import matplotlib.pyplot as plt; plt.plot([1, 2]); None", timeout=120)
    assert "image/png" in drawn.displays[-1].data, drawn.stderr
    assert value(session.run("import os; os.listdir('.')")) == "[]"


@pytest.mark.slow
def test_mounts_forks_and_a_saved_session_in_another_process_work(backend: WasmBackend, tmp_path: Path) -> None:
    (tmp_path / "ro").mkdir()
    (tmp_path / "ro" / "f").write_text("mounted")
    with open_wasm_session(WasmBackend(SandboxPolicy().mount(tmp_path / "ro", "/ro")), "python") as session:
        session.run("import numpy as np; data = np.arange(5); f = open('f', 'w'); f.write('file')")
        with pytest.raises(SessionError, match=r"/box/f'; close them first"):
            session.fork()
        session.run("f.close()")
        with session.fork() as other:
            look = "int(data.sum()), open('f').read(), open('/ro/f').read()"
            assert value(other.run(look)) == "(10, 'file', 'mounted')"
            assert other.run("open('/ro/f', 'w')").error is not None
            other.run("data = None")
        session.run("def score(x): return float(data.sum()) * x")
        session.save(tmp_path / "s")
    program = "import sys\nfrom sandbox_kernel import Sandbox\n"
    program += "with Sandbox.load_session(sys.argv[1]) as s: print(s.run('score(4)').displays[-1].data['text/plain'])"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "s")], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "40.0\n", done.stderr


@pytest.mark.slow
def test_a_session_begins_as_its_image_with_numbers_of_its_own_and_a_fork_copies_what_it_changed(
    backend: WasmBackend, session: WasmSession
) -> None:
    draw = "import numpy, random, sys; numpy.random.random(), random.random()"
    with open_wasm_session(backend, "python") as another, session.fork() as fork:
        drawn = [part for each in (session, another, fork) for part in value(each.run(draw)).split(",")]
    assert len(set(drawn)) == 6
    assert value(session.run("'pandas' in sys.modules, open('/tmp/f', 'w').write('f')")) == "(True, 1)"
    with session._supervisor.turn() as worker:
        changed, whole = take_state(worker, for_fork=True), take_state(worker)
    assert (changed.changes, whole.changes) == (True, False)
    held = [os.fstat(state.memory.fileno()).st_blocks for state in (changed, whole)]
    assert held[0] * 3 < held[1]


def test_too_little_memory_is_refused_with_the_least(backend: WasmBackend) -> None:
    with pytest.raises(InvalidRequest, match="at least 128 MB"):
        open_wasm_session(backend, "python", memory_mb=64)


@pytest.mark.slow
def test_plain_cells_stay_fresh_and_a_named_session_is_kept(backend: WasmBackend, tmp_path: Path) -> None:
    """What a notebook shows must not depend on what was prepared on a machine."""
    assert not has_sessions(Language.PYTHON, "wasm")
    assert only_when_named(Language.PYTHON, "wasm")
    defaults = CellOptions(backend="wasm")
    with Sandbox(backend="wasm") as box:
        sessions = NotebookSessions(lambda _: box)
        assert sessions.choose(parse_cell("%%sandbox python\nx = 1", defaults)).session is None
        named = sessions.choose(parse_cell("%%sandbox python --session lab\nx = 1", defaults)).session
        assert isinstance(named, WasmSession)
        named.run("x = 5")
        named.save(tmp_path / "s")
        loaded = box.load_session(tmp_path / "s")
        sessions.adopt(CellOptions(language=Language.PYTHON, backend="wasm"), loaded)
        assert sessions.choose(parse_cell("%%sandbox python\nx", defaults)).session is loaded
        sessions.close()
