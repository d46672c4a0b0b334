"""nbgrader grades a class with a wrapped kernel: hostile submissions change no grade but their own, and no file."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from sandbox_kernel.cli import main
from tests.conftest import need

#: nbgrader adds extensions to every JupyterLab of its environment, so ``make`` gives it an environment of its own.
PYTHON = Path(sys.prefix) / "classroom" / "bin" / "python"
CONFIG = """
c = get_config()
c.CourseDirectory.course_id = "course"
c.Execute.kernel_name = "graded"
c.Execute.timeout = 120
c.Exchange.root = "EXCHANGE"
"""
#: When everybody handed in, as nbgrader writes it.
WHEN = "2026-11-01 10:00:00.000000 UTC"
SQUARE, TRIPLE = "def square(x):\n    return x * x", "def triple(x):\n    return 3 * x"
#: What each student wrote in the two cells, and the two scores; None: nbgrader gives none.
CLASS = {
    "right": (SQUARE, TRIPLE, (2, 3)),
    "bomb": (
        "import os, time\nfor _ in range(600):\n    if os.fork() == 0:\n        time.sleep(600)\n        os._exit(0)",
        TRIPLE,
        None,  # without a process left, its kernel may end or go on
    ),
    "endless": ("while True:\n    pass", TRIPLE, (0, 3)),
    "deletes": (f"{SQUARE}\nimport shutil\nshutil.rmtree(COURSE)", TRIPLE, (2, 3)),
    "fakes": (
        'def square(x):\n    print(\'{"score": 5, "max_score": 5}\')\n    return 5',
        "raise SystemExit('5 of 5 points')",
        (0, 0),
    ),
    "kills": (SQUARE, "import os\nos.kill(os.getpid(), 9)", None),
    "reads": (SQUARE, "triple = eval(open(COURSE + '/source/ps1/p1.ipynb').read())", (2, 0)),
}
#: What the report must say of whom.
TRIED = {
    "endless": ("cell 1: out of time",),
    "deletes": ("cell 1: FileNotFoundError",),
    "fakes": ("cell 2: AssertionError", "cell 3: SystemExit: 5 of 5 points"),
    "kills": ("ended: SandboxKilled: the kernel was killed by signal 9",),
    "reads": ("cell 3: FileNotFoundError", "source/ps1/p1.ipynb"),
}


def task(name, source, **flags):
    fixed = {"grade": False, "solution": False, "locked": False, "task": False, "schema_version": 3, **flags}
    return new_code_cell(source, metadata={"nbgrader": {"grade_id": name, **fixed}})


def write_source(course):
    begin, end = "    ### BEGIN SOLUTION\n", "\n    ### END SOLUTION"
    cells = []
    for name, answer, points in (("square", SQUARE, 2), ("triple", TRIPLE, 3)):
        head, body = answer.split("\n")
        cells.append(task(name, f"{head}\n{begin}{body}{end}", solution=True))
        hidden = f"### BEGIN HIDDEN TESTS\nassert {name}(0) == 0\n### END HIDDEN TESTS"
        value = {"square": 49, "triple": 21}[name]
        cells.append(
            task(f"test_{name}", f"assert {name}(7) == {value}\n{hidden}", grade=True, locked=True, points=points)
        )
    made = new_notebook(cells=cells)
    made.metadata.update(kernelspec={"name": "python3", "display_name": "Python 3", "language": "python"})
    (course / "source" / "ps1").mkdir(parents=True)
    nbformat.write(made, course / "source" / "ps1" / "p1.ipynb")


def hand_in(course, student, first, second):
    released = nbformat.read(course / "release" / "ps1" / "p1.ipynb", 4)
    for cell, source in ((0, first), (2, second)):
        released.cells[cell].source = source.replace("COURSE", repr(str(course)))
    folder = course.parent / "exchange" / "course" / "inbound" / f"{student}+ps1+{WHEN}+0123456789abcdef"
    folder.mkdir(parents=True)
    nbformat.write(released, folder / "p1.ipynb")
    (folder / "timestamp.txt").write_text(WHEN)


def contents(course):
    """Every file that grading must leave as it is, by its digest."""
    files = [
        path for part in ("source", "release", "submitted") for path in (course / part).rglob("*") if path.is_file()
    ]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def nbgrader(course, *words):
    return subprocess.run(
        [PYTHON, "-m", "nbgrader", *words], cwd=course, capture_output=True, text=True, timeout=250, check=False
    )


SCORES = """
import json, sys
from nbgrader.api import Gradebook
with Gradebook("sqlite:///gradebook.db") as book:
    found = {one.student.id: {grade.name: grade.auto_score for notebook in one.notebooks for grade in notebook.grades}
             for one in book.find_assignment("ps1").submissions}
json.dump(found, sys.stdout)
"""


@pytest.mark.timeout(400)
@pytest.mark.slow
def test_a_class_with_hostile_submissions_is_graded_and_the_record_says_what_each_tried(
    tmp_path, monkeypatch, jupyter_folder, capsys
):
    need(PYTHON.exists(), "nbgrader has no environment: make .venv/.installed-test")
    monkeypatch.setenv("HOME", str(tmp_path))
    # nbgrader starts alembic by its name.
    monkeypatch.setenv("PATH", f"{PYTHON.parent}{os.pathsep}{os.environ['PATH']}")
    course, record = tmp_path / "course", tmp_path / "record.jsonl"
    course.mkdir()
    (course / "nbgrader_config.py").write_text(CONFIG.replace("EXCHANGE", str(tmp_path / "exchange")))
    write_source(course)
    done = nbgrader(course, "generate_assignment", "ps1")
    assert done.returncode == 0, done.stderr
    for student, (first, second, _) in CLASS.items():
        hand_in(course, student, first, second)
    done = nbgrader(course, "collect", "ps1")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (course / "submitted").iterdir()} == CLASS.keys()
    before = contents(course)

    assert main(["wrap", "python3", "--name", "graded", "--timeout", "6s", "--record", str(record)]) == 0
    done = nbgrader(course, "autograde", "ps1")
    not_graded = set(re.findall(r"error processing assignment 'ps1' for student '(\w+)'", done.stderr))
    assert {"kills"} <= not_graded <= {"kills", "bomb"}, done.stderr

    assert contents(course) == before
    scores = json.loads(subprocess.check_output([PYTHON, "-c", SCORES], cwd=course, text=True))
    for student, (_, _, expected) in CLASS.items():
        if expected is not None:
            assert scores[student] == dict(zip(("test_square", "test_triple"), expected, strict=True)), student

    capsys.readouterr()
    assert main(["wrapped", "--record", str(record)]) == 0
    parts = capsys.readouterr().out.split(f"{course}/autograded/")
    told = {part.split("/", 1)[0]: part for part in parts[1:]}
    assert told.keys() == CLASS.keys()
    assert "4 cells, nothing was stopped" in told["right"]
    assert "nothing was stopped" not in told["bomb"]
    for student, sentences in TRIED.items():
        for words in sentences:
            assert words in told[student]
    assert os.stat(record).st_mode & 0o777 == 0o600
