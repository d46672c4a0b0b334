"""The difference of two states of a session that works on the user's folder: its files too."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.session.session import Session
from sandbox_kernel.workspace.overlay.layer import LayerView
from sandbox_kernel.workspace.tree.walk import FILE, Entry

CELLS = (
    "import os, shutil",
    "open('data/rows.csv', 'a').write('5,6\\n'); open('new.txt', 'w').write('new\\n'); open('.env', 'w').write('A=1\\n')",
    "shutil.rmtree('data'); os.unlink('link'); os.symlink('src', 'link'); open(b'\\xff', 'w').close()",
    "os.mkdir('data'); open('data/rows.csv', 'w').write('a,b\\n1,2\\n'); shutil.rmtree('src'); open('src', 'w').write('s')",
)


@pytest.fixture
def session(box: Sandbox, project: Path) -> Iterator[Session]:
    (project / ".netrc").write_text("machine a password secret\n")
    with box.session() as made:
        for cell in CELLS:
            assert made.run(cell).ok
        yield made


def files(session: Session, a: int, b: int) -> dict[str, str]:
    found = session.diff(a, b)
    assert not found.unknown and "secret" not in str(found)
    return {file.path: file.kind for file in found.files}


def test_the_files_of_two_states_are_compared(session: Session) -> None:
    assert files(session, 1, 2) == {"data/rows.csv": "modified", "new.txt": "created", ".env": "created"}
    patch = next(file.patch for file in session.diff(1, 2).files if file.path == "data/rows.csv")
    assert patch.splitlines()[2:] == ["@@ -2 +2,2 @@", " 1,2", "+5,6"]
    gone = {"data/rows.csv": "deleted", "data/more.csv": "deleted", "link": "modified"}
    assert files(session, 2, 3).items() >= gone.items() and len(files(session, 2, 3)) == 4
    assert files(session, 3, 4) == {"data/rows.csv": "created", "src": "created", "src/tool.py": "deleted"}
    assert "data/rows.csv" not in files(session, 1, 4) and files(session, 1, 4)["data/more.csv"] == "deleted"
    session.checkout(2)
    assert files(session, 2, 1) == {"data/rows.csv": "modified", "new.txt": "deleted", ".env": "deleted"}
    assert files(session, 2, 2) == {}


def test_however_deep_changed_files_lie_each_folder_above_them_is_asked_about_once() -> None:
    class Counted(dict[str, Entry]):
        asked = 0

        def get(self, path: str, default: Any = None) -> Any:
            self.asked += 1
            return super().get(path, default)

    deep = "/".join(["d"] * 200)
    entries = Counted({f"{deep}/{number}": Entry(f"{deep}/{number}", FILE) for number in range(500)})
    view = LayerView(None, entries)
    assert all(view.at(path) is not None for path in entries)
    assert entries.asked <= 700
    assert LayerView(None, {"d": Entry("d", FILE), **entries}).at(f"{deep}/1") is None
