"""What the user puts into the folder beside the changes of a session is no change of the session, whatever covers it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel import Conflict, Sandbox


def add_file(project: Path) -> None:
    (project / "data/of_the_user").write_text("never seen by a program")


def make_link(project: Path) -> None:
    shutil.rmtree(project / "data")
    (project / "data").symlink_to("src")


def make_folder(project: Path) -> None:
    (project / "run.sh").unlink()
    (project / "run.sh").mkdir()
    (project / "run.sh/of_the_user").write_text("never seen by a program")


REMOVE = "import os, shutil; shutil.rmtree('data')"
GONE = {"data", "data/rows.csv", "data/more.csv"}


@pytest.mark.parametrize(
    ("program", "meanwhile", "changed", "conflict"),
    [
        pytest.param(REMOVE, add_file, GONE, "data", id="removed"),
        pytest.param(f"{REMOVE}; open('data', 'w').close()", add_file, GONE, "data", id="became-a-file"),
        pytest.param(f"{REMOVE}; os.mkdir('data')", add_file, GONE - {"data"}, "", id="made-again"),
        pytest.param(
            "open('data/a.csv', 'w').close()", make_link, {"data/a.csv"}, "data/a.csv", id="user-makes-a-link"
        ),
        pytest.param("open('run.sh', 'w').close()", make_folder, {"run.sh"}, "run.sh", id="user-makes-a-folder"),
    ],
)
@pytest.mark.one_case
def test_what_the_user_puts_in_is_not_taken_for_a_change_of_the_next_cell(
    box: Sandbox, project: Path, program: str, meanwhile: Callable[[Path], None], changed: set[str], conflict: str
) -> None:
    with box.session() as session:
        assert session.run(program).ok
        meanwhile(project)
        for _ in range(2):
            assert session.run("1").changes == ()
            assert {change.path for change in box.diff()} == changed
        if conflict:
            with pytest.raises(Conflict) as caught:
                box.apply([".", *box.left_out()])
            assert caught.value.paths == (conflict,)
        else:
            box.apply()
            assert session.run("print(os.listdir('data'))").stdout == "['of_the_user']\n"
    found = [path.name for path in project.rglob("of_the_user")]
    assert found == ([] if meanwhile is make_link else ["of_the_user"])
    assert (project / "data").is_symlink() == (meanwhile is make_link)
