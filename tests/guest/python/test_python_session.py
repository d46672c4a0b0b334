"""What a Python cell can do and show, in a real session."""

import base64

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.jail.template import TemplateJail
from sandbox_kernel.model import ExecResult, Status
from sandbox_kernel.session.session import Session


def data(result: ExecResult, position: int = -1) -> dict[str, object]:
    assert result.displays, (result.status, result.stderr, result.notes)
    return dict(result.displays[position].data)


def is_png(text: object) -> bool:
    return base64.b64decode(str(text)).startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_figure_is_shown_in_its_place_without_any_set_up_and_closed(python: Session) -> None:
    asked = "import sys\nprint(sys.modules['sandbox_guest.python.display'].prints_later(get_ipython()))"
    waits = python.run(f"import matplotlib.pyplot as plt\n{asked}", timeout=90).stdout
    assert waits == "False\n", "no value waits for the host because of callbacks of IPython's own"
    seen: list[str] = []
    result = python.run(
        "print('before')\nplt.plot([1]); plt.show()\nprint('after')\nplt.plot([1, 2])\nNone",
        timeout=90,
        on_output=lambda _, text: seen.append(text.strip()),
        on_display=lambda display: seen.append(display.kind),
    )
    assert result.ok, result.stderr
    assert [item for item in seen if item] == ["before", "display", "after", "display"]
    assert is_png(data(result)["image/png"])
    assert result.stderr == ""
    assert python.run("plt.get_fignums()").displays[-1].data["text/plain"] == "[]"
    assert python.run("%matplotlib inline\nplt.plot([2, 1]);").displays[0].kind == "display"


def test_tables_images_and_own_representations_are_shown(python: Session) -> None:
    assert "<table" in str(data(python.run("import pandas as pd; pd.DataFrame({'a': [1]})", timeout=90))["text/html"])
    assert is_png(data(python.run("from PIL import Image; Image.new('RGB', (3, 3))"))["image/png"])
    python.run("import io; file = io.BytesIO(); Image.new('RGB', (3, 3)).save(file, 'png')")
    own = (
        "class T:\n    def _repr_html_(self): return '<b>t</b>'\n    def _repr_png_(self): return file.getvalue()\nT()"
    )
    shown = data(python.run(own))
    assert shown["text/html"] == "<b>t</b>"
    assert is_png(shown["image/png"])
    bundle = "class M:\n    def _repr_mimebundle_(self, **_): return {'application/json': {1: object}}\nM()"
    assert data(python.run(bundle))["application/json"] == {"1": "<class 'object'>"}


def test_await_works_at_the_top_level_and_tasks_go_on(python: Session) -> None:
    assert data(python.run("import asyncio\nawait asyncio.sleep(0, 7)"))["text/plain"] == "7"
    python.run("async def f(): return 8\ntask = asyncio.ensure_future(f())\nawait asyncio.sleep(0)")
    assert data(python.run("await task"))["text/plain"] == "8"
    assert data(python.run("asyncio.run(f()) if False else 9"))["text/plain"] == "9"


def test_commands_run_inside_and_their_output_is_captured(python: Session) -> None:
    assert python.run("!echo $HOME; id -u; hostname").stdout == "/box\n1000\nsandbox\n"
    assert data(python.run("out = !echo one\nout"))["text/plain"] == "['one']"
    assert python.run("word = 'hi'\n!echo {word} $word").stdout == "hi hi\n"
    assert python.run("%%bash\necho from bash").stdout == "from bash\n"


def test_harmless_magics_work(python: Session) -> None:
    assert "Wall time" in python.run("%time x = 1").stdout
    assert python.run("%timeit -n1 -r1 pass").ok
    assert python.run("%cd /tmp").stdout == "/tmp\n"
    assert python.run("%cd /box").stdout == "/box\n"
    python.run("unique_name_here = 1")
    assert "unique_name_here" in python.run("%who").stdout
    assert python.run("%%capture c\nprint('hidden')").stdout == ""
    assert python.run("print(c.stdout)").stdout == "hidden\n\n"
    assert "Return the number of items" in str(data(python.run("len?"))["text/plain"]), "and is not paged"


def test_a_traceback_has_the_cells_lines_and_is_the_same_each_time(python: Session) -> None:
    code = "def f(x):\n    return 1 / x\n\nf(0)"
    first, second = python.run(code, number=40), python.run(code, number=40)
    assert "Cell In[40], line 4" in first.stderr
    assert "----> 2     return 1 / x" in first.stderr.replace("return 1 / x", "    return 1 / x").replace(
        " " * 8, " " * 4
    )
    assert first.stderr == second.stderr
    assert "\x1b" not in first.stderr
    assert first.error is not None
    assert first.error.traceback == second.error.traceback  # type: ignore[union-attr]
    assert "ZeroDivisionError" in first.error.traceback[-1]


def test_errors_of_every_sort_have_their_own_name(python: Session) -> None:
    cases = {
        "def f(:": "SyntaxError",
        "raise SystemExit(3)": "SystemExit",
        "raise ExceptionGroup('g', [ValueError()])": "ExceptionGroup",
        "raise KeyboardInterrupt": "KeyboardInterrupt",
        "x = yield": "SyntaxError",
        "%nosuchmagic": "UsageError",
        "import nothing_of_that_name": "ModuleNotFoundError",
    }
    for code, name in cases.items():
        result = python.run(code)
        assert result.status is Status.FAILED, code
        assert result.error is not None, code
        assert result.error.ename == name, code
        assert result.error.traceback, code


def test_exit_ends_the_cell_with_its_code_and_not_the_session(python: Session) -> None:
    assert (python.run("exit()").status, python.run("raise SystemExit").status) == (Status.OK, Status.OK)
    result = python.run("import sys; sys.exit('words')")
    assert (result.status, result.exit_code, result.stderr) == (Status.FAILED, 1, "words\n")
    assert python.run("sys.exit(260)").exit_code == 4


def test_the_program_sees_an_ordinary_main_module_and_its_own_modules_and_one_native_thread(python: Session) -> None:
    python.run("for name in ('gate', 'session_worker', 'lockdown'): open(name + '.py', 'w').write('mine = 1')")
    assert data(python.run("import gate, session_worker, lockdown; gate.mine"))["text/plain"] == "1"
    assert python.run("import ctypes; n = ctypes.CDLL(None).printf(b'from c')").stdout == "from c"
    assert data(python.run("import os; os.environ['OMP_NUM_THREADS']"))["text/plain"] == "'1'", "checkpoints are forks"
    seen = "__name__, __import__('sys').argv, __import__('sys').path[0], '/guest' in __import__('sys').path"
    assert data(python.run(seen))["text/plain"] == "('__main__', [''], '', False)"
    assert data(python.run("import sys; sys.stdin.read()"))["text/plain"] == "''"


def test_functions_of_a_cell_go_to_processes_and_into_pickles(python: Session) -> None:
    python.run("import multiprocessing as mp\ndef double(x): return 2 * x")
    code = "with mp.Pool(2) as pool: r = pool.map(double, [1, 2])\nr"
    assert data(python.run(code))["text/plain"] == "[2, 4]"
    assert data(python.run("import pickle; pickle.loads(pickle.dumps(double))(4)"))["text/plain"] == "8"


def test_limits_that_only_the_program_met_are_named(python: Session) -> None:
    full = python.run("f = open('/box/full', 'wb')\nwhile True: f.write(bytes(1 << 20))", timeout=60)
    assert (full.status, full.limit, full.error.ename) == (Status.FAILED, "disk", "OSError")  # type: ignore[union-attr]
    python.run("f = None; import os; os.unlink('/box/full')")
    files = python.run("many = []\nwhile True: many.append(open('/dev/null'))")
    assert (files.status, files.limit) == (Status.FAILED, "open_files")
    python.run("many = None")


@pytest.mark.slow
def test_nothing_is_left_of_the_error_that_a_template_rehearses() -> None:
    with Sandbox() as box:
        fresh = box.session()
        while not isinstance(fresh._supervisor.live.jail, TemplateJail):  # type: ignore[union-attr] # soon there is one
            fresh.close()
            fresh = box.session()
        found = fresh.run("import sys; hasattr(sys, 'last_value'), hasattr(sys, 'last_traceback'), len(In)")
        assert data(found)["text/plain"] == "(False, False, 2)"
        assert data(fresh.run("'pygments.lexers.python' in sys.modules"))["text/plain"] == "True"


def test_an_object_that_cannot_be_shown_fails_its_cell_and_a_form_of_it_that_fails_does_not(python: Session) -> None:
    result = python.run("class B:\n    def _repr_html_(self): 1/0\n    def __repr__(self): return 'B!'\nB()")
    assert data(result)["text/plain"] == "B!"
    found = python.run("class Broken:\n    def __repr__(self):\n        1 / 0\nBroken()")
    assert found.error is not None
    assert found.error.ename == "ZeroDivisionError"
    assert python.run("1").ok


def test_a_traceback_that_a_cell_asks_for_is_printed_and_the_cell_is_fine(python: Session) -> None:
    python.run("Broken = 1; Broken")
    found = python.run("try:\n    1 / 0\nexcept Exception:\n    get_ipython().showtraceback()")
    assert found.ok
    assert "division by zero" in found.stderr


def seen(session: Session, code: str) -> str:
    """Run a cell; return what a page gets, in its order."""
    shown: list[str] = []
    result = session.run(
        code,
        on_output=lambda _stream, text: shown.append(text),
        on_display=lambda display: shown.append(f"<{display.data['text/plain']}>"),
    )
    assert result.ok, result.stderr
    return "".join(shown)


def test_values_stand_among_what_is_printed_and_above_what_a_callback_prints() -> None:
    with Sandbox() as box, box.session() as session:
        assert seen(session, "%autosave 60").startswith("%autosave changes nothing here")
        assert seen(session, "%gui asyncio") == ""
        assert "no window can be opened" in session.run("%gui qt").stderr
        seen(session, "get_ipython().events.register('post_run_cell', lambda info: print('after'))")
        for _ in range(5):
            assert seen(session, "1 + 1") == "<2>after\n"
        seen(session, "%config InteractiveShell.ast_node_interactivity = 'all'")
        for _ in range(5):
            assert seen(session, "1\nprint('one')\n2\nprint('two')") == "<1>one\n<2>two\nafter\n"
