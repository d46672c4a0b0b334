"""What comes back with a rollback: everything that a cell could have changed, named one by one."""

from collections.abc import Callable

import pytest

from sandbox_kernel.session.session import Session

Value = Callable[[Session, str], str]

DIE = "\nimport os; os._exit(1)"


def lose(session: Session, code: str) -> tuple[str, ...]:
    result = session.run(code + DIE)
    assert result.rolled_back, (result.status, result.stderr, result.notes)
    return result.notes


def test_open_files_keep_their_position_and_their_content(session: Session, value: Value) -> None:
    session.run("open('a.txt', 'w').write('one\\ntwo\\nthree\\n')\nf = open('a.txt', 'rb', buffering=0)\nf.readline()")
    session.run("log = open('log.txt', 'a'); log.write('kept '); log.flush()")
    lose(session, "f.read(); log.write('lost'); log.flush(); open('a.txt', 'w').write('gone')")
    assert value(session, "f.readline(), f.tell()") == "(b'two\\n', 8)"
    assert value(session, "log.write('too'), log.flush(), open('log.txt').read()") == "(3, None, 'kept too')"


def test_a_cell_that_used_up_all_descriptors_is_kept_when_the_next_one_dies(session: Session, value: Value) -> None:
    session.run("kept = []\ntry:\n    while True: kept.append(open('/dev/null'))\nexcept OSError: count = len(kept)")
    for _ in range(2):
        lose(session, "kept.clear()")
        assert value(session, "count > 50 and len(kept) == count") == "True"
    assert all(node.alive for node in session.history())


#: Cells that are kept, one that is lost, and what the session shows afterwards.
COMES_BACK = {
    "random numbers": (
        [
            "import random; random.seed(7); a, b, c = (random.random() for _ in range(3)); random.seed(7); random.random()"
        ],
        "[random.random() for _ in range(100)]; random.seed(0)",
        "(random.random(), random.random()) == (b, c)",
        "True",
    ),
    "a removed working directory": (
        ["import os, shutil; os.mkdir('inner'); os.chdir('inner'); open('f', 'w').write('x')"],
        "os.chdir('/'); shutil.rmtree('/box/inner')",
        "os.getcwd(), os.listdir('.')",
        "('/box/inner', ['f'])",
    ),
    "a mapped file whose time did not change": (
        [
            "import mmap; open('m', 'wb').write(bytes(4096)); f = open('m', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[0] = 1",
            "m[0] = 2",
        ],
        "m[0] = 3",
        "m[0], open('m', 'rb').read(1)",
        "(2, b'\\x02')",
    ),
    "modules and their state": (
        ["import json, sys, decimal; decimal.getcontext().prec = 7; sys.setrecursionlimit(1234)"],
        "del sys.modules['json']; decimal.getcontext().prec = 1; import csv; sys.setrecursionlimit(999)",
        "'json' in sys.modules, decimal.getcontext().prec, sys.getrecursionlimit(), 'csv' in globals()",
        "(True, 7, 1234, False)",
    ),
    "environment, umask and signal handlers": (
        ["import os, signal; os.environ['A'] = '1'; os.umask(0o077); signal.signal(10, signal.SIG_IGN)"],
        "os.environ['A'] = '2'; os.umask(0); signal.signal(10, signal.SIG_DFL)",
        "os.environ['A'], os.umask(0o077), int(signal.getsignal(10))",
        "('1', 63, 1)",
    ),
    "flags of descriptors": (
        ["import os"],
        "os.set_blocking(1, False); os.set_blocking(2, False)",
        "os.get_blocking(1), os.get_blocking(2)",
        "(True, True)",
    ),
    "an event loop and its tasks": (
        [
            "import asyncio\nasync def later(): await asyncio.sleep(0.01); return 5\nawait asyncio.sleep(0)",
            "task = asyncio.ensure_future(later()); await asyncio.sleep(0)",
        ],
        "task.cancel(); await asyncio.sleep(0)",
        "await task",
        "5",
    ),
}


@pytest.mark.parametrize("what", COMES_BACK)
def test_what_a_lost_cell_changed_comes_back(session: Session, value: Value, what: str) -> None:
    kept, lost, shown, expected = COMES_BACK[what]
    for code in kept:
        session.run(code)
    lose(session, lost)
    assert value(session, shown) == expected


def test_an_unseeded_generator_draws_the_same_again_after_undo(session: Session) -> None:
    session.run("import random")
    first = session.run("a = random.random(); print(a)").stdout
    session.undo()
    assert session.run("print(random.random())").stdout == first


def test_files_that_were_made_changed_or_removed_are_as_before(session: Session, value: Value) -> None:
    session.run("import os, pathlib\nos.makedirs('d/e')\npathlib.Path('d/e/f').write_text('old')\nos.symlink('d', 'l')")
    session.run("os.chmod('d/e/f', 0o640); os.utime('d/e/f', (1, 2)); os.link('d/e/f', 'hard')")
    notes = lose(
        session,
        "pathlib.Path('d/e/f').write_text('new'); os.mkdir('more'); pathlib.Path('more/x').write_text('x')\n"
        "os.unlink('l'); os.mkdir('l'); os.chmod('d', 0)",
    )
    assert not any("files" in note for note in notes)
    seen = "sorted(os.listdir('.')), os.readlink('l'), open('hard').read(), os.stat('d/e/f').st_mode & 0o777"
    assert value(session, seen) == "(['d', 'hard', 'l'], 'd', 'old', 416)"
    assert value(session, "os.stat('d/e/f').st_mtime, os.path.samefile('hard', 'd/e/f')") == "(2.0, True)"


def test_a_hostile_tree_in_the_work_folder_does_not_stop_the_rollback(session: Session, value: Value) -> None:
    session.run("open('kept', 'w').write('kept')")
    hostile = """
import os
os.mkfifo('fifo'); os.symlink('/proc/self/mem', 'mem'); os.symlink('.', 'loop')
os.mkdir('locked'); open('locked/f', 'w').close(); os.chmod('locked', 0)
os.mkdir(b'\\xff\\xfe'); open('-rf', 'w').close(); open('new\\nline', 'w').close()
for _ in range(1500):
    os.mkdir('deep'); os.chdir('deep')
os.chmod('/box', 0)
"""
    lose(session, hostile)
    assert value(session, "import os; os.listdir('.'), os.getcwd()") == "(['kept'], '/box')"


def test_a_folder_too_large_to_copy_is_left_alone_and_said_so(session: Session, value: Value) -> None:
    session.run("open('large', 'wb').write(bytes(40 << 20)); x = 1")
    notes = lose(session, "open('small', 'w').write('s'); x = 2")
    assert "not all files in the work folder are as they were before: they are larger than 32 MB" in notes
    assert value(session, "import os; sorted(os.listdir('.')), x") == "(['large', 'small'], 1)"


@pytest.mark.slow
def test_numpy_and_pandas_work_in_the_state_that_came_back(session: Session, value: Value) -> None:
    session.run("import numpy as np, pandas as pd; np.random.seed(3); a = np.arange(1e6); m = np.eye(200)", timeout=60)
    expected = value(session, "np.random.seed(3); np.random.rand()")
    session.run("np.random.seed(3)")
    lose(session, "a[:] = 0; np.random.rand(1000); (m @ m).sum()")
    assert value(session, "float(a.sum()), (m @ m).sum().item()") == "(499999500000.0, 200.0)"
    assert value(session, "np.random.rand()") == expected
    assert value(session, "pd.DataFrame({'x': a[:3]}).x.tolist()") == "[0.0, 1.0, 2.0]"


@pytest.mark.slow
def test_matplotlib_settings_and_open_figures_come_back(session: Session, value: Value) -> None:
    session.run(
        "import matplotlib.pyplot as plt; plt.rcParams['lines.linewidth'] = 7; f, ax = plt.subplots()", timeout=90
    )
    lose(session, "plt.rcParams['lines.linewidth'] = 1; ax.plot([1, 2])")
    assert value(session, "plt.rcParams['lines.linewidth'], len(ax.lines)") == "(7.0, 0)"
    shown = session.run("ax.plot([1, 2]); f")
    assert "image/png" in shown.displays[-1].data


def test_threads_of_earlier_cells_live_on_until_a_rollback_which_says_that_they_are_gone(
    session: Session, value: Value
) -> None:
    session.run(
        "import threading\nstop, ticks = threading.Event(), []\n"
        "def tick():\n    while not stop.wait(0.001): ticks.append(1)\n"
        "t = threading.Thread(target=tick, daemon=True); t.start()"
    )
    assert value(session, "n = len(ticks)\nwhile len(ticks) == n: pass\nt.is_alive()") == "True"
    assert "1 thread of earlier cells did not come back" in lose(session, "")
    assert value(session, "t.is_alive()") == "False"


def test_a_process_of_an_earlier_cell_lives_on_and_one_of_the_lost_cell_does_not(
    session: Session, value: Value
) -> None:
    session.run("import subprocess; old = subprocess.Popen(['sleep', '1000'])")
    lose(
        session,
        "new = subprocess.Popen(['sleep', '2000']); daemon = subprocess.Popen('setsid sleep 3000 &', shell=True)",
    )
    running = value(
        session, "sorted(a for a in subprocess.getoutput('ps -eo args').splitlines() if a.startswith('sleep'))"
    )
    assert running == "['sleep 1000']"


def test_undo_ends_the_processes_of_the_cells_that_it_takes_back(session: Session, value: Value) -> None:
    session.run("import subprocess")
    session.run("one = subprocess.Popen(['sleep', '1000'])")
    session.run("two = subprocess.Popen(['sleep', '2000'])")
    session.undo()
    assert value(session, "subprocess.getoutput('pgrep -af ^sleep').split()[1:]") == "['sleep', '1000']"
    session.undo(2)
    assert value(session, "subprocess.getoutput('pgrep -c ^sleep')") == "'0'"


def test_the_prompt_number_goes_back_too(session: Session, value: Value) -> None:
    session.run("x = 1")
    lose(session, "")
    assert "Cell In[2], line 1" in session.run("1/0").stderr
    assert value(session, "In[2]") == "'1/0'"


@pytest.mark.parametrize("wait", ["os.wait()", "os.waitpid(-1, 0)", "os.wait3(0)", "os.wait4(-1, 0)"])
@pytest.mark.one_case
def test_checkpoints_are_not_children_of_the_program(session: Session, value: Value, wait: str) -> None:
    code = f"""
import os
children = set()
for code in (3, 4):
    pid = os.fork()
    if pid == 0:
        os._exit(code)
    children.add(pid)
ended = []
try:
    while True:
        ended.append({wait}[:2])
except ChildProcessError:
    pass
"""
    assert session.run("pass").ok
    assert session.run(code, timeout=10).ok
    seen = "sorted(os.waitstatus_to_exitcode(s) for _, s in ended), {p for p, _ in ended} == children"
    assert value(session, seen) == "([3, 4], True)"
