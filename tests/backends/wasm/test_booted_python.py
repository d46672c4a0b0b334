"""Python from its image: what a program finds is what a new process would find. Shares the machine's own store."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.backends.wasm.prepare import guest_name, switches_of
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.backends.wasm.wasm_job import MOST_MOUNTS
from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.languages.guest_catalogue import catalogue
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Status
from sandbox_kernel.model.notes import NoteKind, has_note
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.session.open_wasm import open_wasm_session

Run = Callable[..., ExecResult]
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def run(guest_backend: WasmBackend) -> Run:
    def run(code: str, *, backend: WasmBackend = guest_backend, **fields: object) -> ExecResult:
        return backend.run(ExecRequest(language=Language.PYTHON, code=code, timeout=30, **fields))  # type: ignore[arg-type]

    return run


def test_python_is_an_image_with_common_modules_and_sql_shares_it(guest_backend: WasmBackend, run: Run) -> None:
    guest = catalogue()[Language.PYTHON]
    switches = switches_of(guest, fuel=False)
    assert guest.image and guest_backend.ready(guest, switches).path.endswith(guest_name(guest, switches))
    assert guest_name(catalogue()[Language.SQL], switches) == guest_name(guest, switches)
    result = run("import sys; print({'json', 're', 'asyncio', 'sqlite3', 'dataclasses'} <= set(sys.modules))")
    assert (result.stdout, result.notes) == ("True\n", ())


@pytest.mark.parametrize(
    ("code", "exit_code", "stdout", "stderr"),
    [
        ("def f(): return 1/0\nf()", 1, "", 'Traceback (most recent call last):\n  File "/cell/cell.py", line 2, in <mod'),
        ("x = (", 1, "", "SyntaxError: '(' was never closed"),
        ("import sys; sys.exit(3)", 3, "", ""),
        ("import sys; sys.exit('bye')", 1, "", "bye\n"),
        ("raise SystemExit", 0, "", ""),
        ("import sys; sys.exit(-1)", -1, "", ""),
        ("import atexit; atexit.register(print, 'last'); print('first')", 0, "first\nlast\n", ""),
        ("class A:\n def __del__(self): print('gone')\na = A()", 0, "gone\n", ""),
        ("import warnings; warnings.warn('w')", 0, "", "/cell/cell.py:1: UserWarning: w"),
        ("import logging; logging.warning('w')", 0, "", "WARNING:root:w\n"),
        ("print(__name__, __file__)", 0, "__main__ /cell/cell.py\n", ""),
        ("import pickle, dataclasses as d\n@d.dataclass\nclass P: x: int\nprint(pickle.loads(pickle.dumps(P(3))))", 0,
         "P(x=3)\n", ""),
        ("import sys; print(sys.is_finalizing(), sys.exc_info(), sys.getrecursionlimit())", 0,
         "False (None, None, None) 1000\n", ""),
        ("import sys; print(sys.argv)", 0, "['/cell/cell.py']\n", ""),
        ("import sys; print(sys.path[:3], '' in sys.path)", 0, "['/cell', '/box', '/usr/local/lib/python312.zip'] False\n", ""),
        ("import tomllib, wave, plistlib; print('more')", 0, "more\n", ""),
        ("# -*- coding: latin-1 -*-\nprint('ok')", 0, "ok\n", ""),
        ("import traceback\ntry: 1/0\nexcept Exception: traceback.print_exc()", 0, "", 'File "/cell/cell.py", line 2'),
        ("import inspect\ndef f(): return 1\nprint(inspect.getsource(f))", 0, "def f(): return 1\n\n", ""),
    ],
)  # fmt: skip
@pytest.mark.one_case
def test_a_program_finds_a_new_interpreter(run: Run, code: str, exit_code: int, stdout: str, stderr: str) -> None:
    result = run(code)
    assert (result.exit_code, result.stdout) == (exit_code, stdout), result.stderr
    assert stderr in result.stderr and "_boot" not in result.stderr


def test_recursion_ends_in_an_error_and_not_in_a_trap(run: Run) -> None:
    code = """import json, sys
def f(n): return f(n + 1)
for call in (lambda: f(0), lambda: json.loads('[' * 100000)):
    try: call()
    except RecursionError: print('deep')
class A:
    def __repr__(self): return repr(self)
try: repr(A())
except RecursionError: print('deep')
"""
    assert run(code).stdout == "deep\n" * 3


def test_randomness_is_drawn_anew_in_each_run(run: Run) -> None:
    draw = "import random, os, uuid, secrets, tempfile\nprint(random.random(), os.urandom(8), sep='\\n')\n"
    draw += "print(uuid.uuid4(), secrets.token_hex(), next(tempfile._get_candidate_names()), sep='\\n')"
    first, second = (run(draw).stdout.splitlines() for _ in range(2))
    assert len(first) == 5 and not set(first) & set(second)


def test_a_seed_and_a_clock_make_a_run_repeatable(run: Run) -> None:
    code = "import random, time; print(random.random(), int(time.time()))"
    fixed = {"SANDBOX_SEED": "7", "SANDBOX_TIME": "1700000000"}
    first = run(code, env=fixed)
    assert first.stdout.endswith(" 1700000000\n") and run(code, env=fixed).stdout == first.stdout
    with pytest.raises(InvalidRequest, match="SANDBOX_TIME must be"):
        run(code, env={"SANDBOX_TIME": "tomorrow"})


def test_clocks_are_those_of_the_run(run: Run) -> None:
    code = """import time, logging
r = logging.makeLogRecord({}); r = logging.LogRecord('n', 20, 'p', 1, 'm', (), None)
print(time.time(), r.relativeCreated < 5000)
b = time.monotonic(); time.sleep(0.05); print(time.monotonic() - b >= 0.05)"""
    wall, recent, slept = run(code).stdout.split()
    assert abs(float(wall) - time.time()) < 20 and (recent, slept) == ("True", "True")


def test_arguments_variables_input_and_files_are_those_of_the_run(run: Run) -> None:
    result = run(
        "import os, sys; print(sys.argv[1:], os.environ['NAME'], input(), open('/box/a').read(), open('a').read())\n"
        "open('b', 'w').write('kept')",
        args=("a", "b c", ""),
        env={"NAME": "välue=1"},
        stdin="Bob\n",
        files={"a": "A"},
    )
    assert result.stdout == "['a', 'b c', ''] välue=1 Bob A A\n", result.stderr
    assert [change.path for change in result.changes] == ["b"]
    assert run("import os; print('NAME' in os.environ)").stdout == "False\n"


def test_the_root_the_present_folder_and_the_box_are_one_place(run: Run) -> None:
    result = run("import os; open('/one', 'w').close(); print(*map(os.listdir, ('/', '.', '/box')), os.getcwd())")
    assert result.stdout == "['one'] ['one'] ['one'] /\n", result.stderr


def test_a_module_in_the_work_folder_can_be_imported(run: Run) -> None:
    code = "import helper, part.inner; print(helper.value, part.inner.value, helper.__file__)"
    files = {"helper.py": b"value = 1", "part/inner.py": b"value = 2", "sitecustomize.py": b"1 / 0"}
    result = run(code, files=files)
    assert (result.stdout, result.changes) == ("1 2 /box/helper.py\n", ()), result.stderr
    made = run("open('made.py', 'w').write('value = 3'); import made; print(made.value)")
    assert (made.stdout, [change.path for change in made.changes]) == ("3\n", ["made.py"]), made.stderr


@pytest.mark.slow
def test_mounts_are_found_under_their_names(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = SandboxPolicy()
    for number in range(MOST_MOUNTS):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "f").write_text(f"{number}")
        policy = policy.mount(tmp_path / str(number), f"/data/{number}/" + "x" * number, writable=number == 0)
    backend = WasmBackend(policy)
    code = f"print(*(open(f'/data/{{n}}/' + 'x' * n + '/f').read() for n in range({MOST_MOUNTS})))"
    result = run(code + "\nopen('/data/0/g', 'w').write('new')", backend=backend)
    assert result.stdout.split() == [str(number) for number in range(MOST_MOUNTS)], result.stderr
    assert (tmp_path / "0" / "g").read_text() == "new" and not result.notes
    assert "Error" in run("open('/data/1/x/g', 'w')", backend=backend).stderr
    (tmp_path / "one_more").mkdir()
    more = WasmBackend(policy.mount(tmp_path / "one_more", "/more"))
    monkeypatch.setattr(more, "is_prepared", lambda guest: guest.entry != "turn")  # the large Python takes more
    for start in (lambda: run("print(1)", backend=more), lambda: open_wasm_session(more, "python")):
        with pytest.raises(PolicyViolation, match=f"room for {MOST_MOUNTS} mounts.* {MOST_MOUNTS + 1} were given"):
            start()


def test_nothing_of_one_run_is_in_the_next(run: Run) -> None:
    run("import json, builtins; json.left = builtins.left = 1")
    assert (
        run("import json, builtins; print(hasattr(json, 'left'), hasattr(builtins, 'left'))").stdout == "False False\n"
    )


@pytest.mark.slow
def test_fuel_and_memory_are_counted_in_an_image(run: Run) -> None:
    assert run("while True: pass", limits=Limits(fuel=50_000_000)).status is Status.FUEL_EXHAUSTED
    assert run("x = bytearray(200 << 20)", memory_limit_mb=64).status is Status.MEMORY_EXCEEDED


def test_variables_that_python_reads_when_it_starts_have_no_effect_and_it_is_said(run: Run) -> None:
    result = run("print(1)", env={"PYTHONHASHSEED": "0", "PYTHONPATH": "/x"})
    assert has_note(result.notes, NoteKind.NOT_BOOTED) and result.notes[-1].startswith("PYTHONHASHSEED has no effect")
    assert result.stdout == "1\n"


@pytest.mark.slow
def test_a_folder_can_be_the_root_and_the_box_stays_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "name").write_text("mine")
    (tmp_path / "out").symlink_to("/etc/hostname")
    code = (
        "import os; print(sorted(os.listdir('/')), open('/etc/name').read(), os.listdir('/box'), os.getcwd())\n"
        "for path in ('/out', '/../etc/hostname', '/etc/passwd'):\n"
        "    try: print(open(path).read())\n"
        "    except OSError: print('no')\n"
        "try: open('/new', 'w').close(); print('made')\n"
        "except OSError: print('read-only')\n"
        "open('/box/kept', 'w').close()"
    )
    for writable, expected in ((False, "read-only"), (True, "made")):
        policy = SandboxPolicy().mount(tmp_path, "/", writable=writable)
        result = WasmBackend(policy).run(ExecRequest(language=Language.PYTHON, code=code, timeout=30))
        lines = ["['etc', 'out'] mine [] /", "no", "no", "no", expected]
        assert result.stdout.splitlines() == lines, result.stderr
    assert (tmp_path / "new").exists()


def test_only_programs_that_see_folders_by_name_can_have_another_root(tmp_path: Path) -> None:
    policy = SandboxPolicy().mount(tmp_path, "/")
    with pytest.raises(PolicyViolation, match="root of its own"):
        WasmBackend(policy).run(ExecRequest(language=Language.JAVASCRIPT, code="1", timeout=30))
    with Sandbox(policy) as box, pytest.raises(PolicyViolation, match="backend='wasm'"):
        box.run("print(1)")
