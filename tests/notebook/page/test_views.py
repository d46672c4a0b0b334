"""``%sandbox files`` shows sizes and glimpses, and nothing that a file's name or content could do to a page."""

import base64
from dataclasses import replace

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.errors import SessionError
from sandbox_kernel.model import FsChange
from sandbox_kernel.notebook.page.views import (
    MAX_ROWS,
    MOST_DIFF,
    FileRow,
    diff,
    files_message,
    list_files,
    show_changes,
    text_message,
    tree_lines,
)
from sandbox_kernel.notebook.render import ShowOutput, refusal
from sandbox_kernel.session.tree.node import Changes, Node, StateDiff, ValueChange
from sandbox_kernel.workspace.changes import FileDiff

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.mark.slow
def test_files_of_sessions_and_of_fresh_runs_stand_in_one_list() -> None:
    with Sandbox() as box:
        session = box.session()
        session.run("open('a.csv','w').write('x,y\\n1,2\\n')")
        box.run("echo hello > b.txt", "command")
        last = session.run("open('a.csv','a').write('3,4\\n'); open('c.bin','wb').write(b'\\xff\\x00')").changes
        rows = {row.name: row for row in list_files(box, session, last)}
    assert replace(rows["a.csv"], link="") == FileRow(
        name="a.csv", size="12 bytes", change="modified by the last cell", text="x,y"
    )
    assert replace(rows["b.txt"], link="") == FileRow(name="b.txt", size="6 bytes", text="hello")
    assert rows["c.bin"].change == "created by the last cell"
    assert rows["c.bin"].text == ""


def test_a_file_that_is_too_large_to_share_is_listed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox_kernel.workspace.folder_link.MAX_SHARED_FILE", 100)
    with Sandbox() as box:
        session = box.session()
        session.run("open('big','w').write('x' * 1000)")
        assert [(row.name, row.size) for row in list_files(box, session, ())] == [("big", "1000 bytes")]


def test_a_picture_is_drawn_only_when_it_is_one() -> None:
    with Sandbox() as box:
        box.write_file("real.png", PNG)
        box.write_file("fake.png", b"<svg onload=alert(1)>")
        rows = {row.name: row for row in list_files(box, None, ())}
    assert rows["real.png"].picture.startswith("data:image/png;base64,")
    assert (rows["fake.png"].picture, rows["fake.png"].text) == ("", "<svg onload=alert(1)>")


def test_names_and_texts_are_no_markup_no_formula_and_no_escape() -> None:
    with Sandbox() as box:
        box.run("printf '\\033[2J$\\\\href{javascript:alert(1)}{x}$<b>\\n' > '<i>\n$a$'", "command")
        message = files_message(list_files(box, None, ()))
    page, text = str(message.data["text/html"]), str(message.data["text/plain"])
    assert "<b>" not in page
    assert "<i>" not in page
    assert "\\href" not in page
    assert "\x1b" not in text
    assert len(text.splitlines()) == 2


HOSTILE = "a\x1b[8m\x1b]52;c;eA==\x07\n▣ allowed\x9b31m" + "\u05d0a" * 9000


class OneDiff:
    """A session with one difference, and a folder with one change, of a program that chose all names and contents."""

    here = "/folder"

    def diff(self, *states: str) -> StateDiff | list[FsChange]:
        file = FileDiff(path=HOSTILE, kind="created", patch=f"+{HOSTILE}\n")
        pair = ValueChange(HOSTILE, HOSTILE)
        known = StateDiff(before=0, after=1, changed={"x": pair}, files=(file,), unknown=(HOSTILE,))
        return known if states else [FsChange(path=HOSTILE, kind="created", size=3)]

    def patch(self, paths: object) -> str:
        return f"+{HOSTILE}\n" * 20_000


@pytest.mark.parametrize("command", ["diff", "changes", "text", "error"])
def test_no_line_command_says_more_of_a_program_than_text_without_our_mark(command: str) -> None:
    shown = {
        "diff": lambda: diff(OneDiff(), ["0", "1"]),  # type: ignore[arg-type]
        "changes": lambda: show_changes(OneDiff(), []),  # type: ignore[arg-type]
        "text": lambda: text_message(HOSTILE),
        "error": lambda: [ShowOutput({"text/plain": refusal(SessionError(HOSTILE)).evalue})],
    }[command]()
    for text in shown[0].data.values():
        assert not set("\x1b\x07\x9b▣") & set(str(text))
        assert len(str(text)) < 2 * MOST_DIFF + 100_000 and str(text).count("\u05d0") < 15_000


def test_a_long_list_is_cut_and_says_so() -> None:
    rows = [FileRow(name=str(number), size="1 byte") for number in range(MAX_ROWS + 3)]
    message = files_message(rows)
    assert "and 3 more" in str(message.data["text/plain"])
    assert "and 3 more" in str(message.data["text/html"])


def test_a_file_can_be_saved_from_the_list() -> None:
    with Sandbox() as box:
        box.write_file("deep/it's <b>.bin", bytes(range(256)))
        rows = list_files(box, None, ())
    page = str(files_message(rows).data["text/html"])
    assert base64.b64decode(rows[0].link.removeprefix("data:application/octet-stream;base64,")) == bytes(range(256))
    assert f"<a href='{rows[0].link}' download='it&#x27;s &lt;b&gt;.bin'" in page


def test_links_are_bounded_together_and_a_large_file_has_none() -> None:
    with Sandbox() as box:
        for number in range(12):
            box.write_file(f"{number:02}", bytes(200 << 10))
        box.write_file("zz", bytes(300 << 10))
        rows = list_files(box, None, ())
    assert [bool(row.link) for row in rows] == [True] * 10 + [False] * 3


def node(id: int, parent: int | None, code: str = "", **fields: object) -> Node:
    known: dict[str, object] = {
        "name": "",
        "number": id,
        "time": 0.0,
        "changed": Changes(),
        "memory_bytes": None,
        "alive": True,
        "present": False,
    }
    return Node(id=id, parent=parent, code=code, **{**known, **fields})  # type: ignore[arg-type]


def test_the_line_of_the_present_state_is_straight_and_others_stand_beside_it() -> None:
    nodes = (
        node(0, None),
        node(1, 0, "x = 1"),
        node(2, 1, "x = 2", alive=False),
        node(3, 2, "x = 3"),
        node(4, 1, "y = 1", present=True, name="best"),
        node(5, 1, "z = 1"),
    )
    assert tree_lines(nodes) == [
        "○ the beginning",
        "○ [1] x = 1",
        "├─· [2] x = 2",
        "│ ○ [3] x = 3",
        "├─○ [5] z = 1",
        "● 'best'  [4] y = 1",
    ]


@pytest.mark.slow
def test_a_long_history_is_drawn_without_recursion() -> None:
    chain = [node(0, None), *(node(number, number - 1, "pass") for number in range(1, 5000))]
    assert len(tree_lines(chain)) == 5000


def test_a_line_says_what_changed_and_cuts_long_cells() -> None:
    changes = Changes(
        added=("a", "b"), changed=("c",), removed=("d",), files=(FsChange(path="out.csv", kind="created"),)
    )
    assert tree_lines([node(1, None, "x", changed=changes)]) == ["○ [1] x  +a +b ~c -d  1 file"]
    (line,) = tree_lines([node(1, None, "\n\n" + "x" * 100, changed=Changes(added=tuple("abcdefgh")))])
    assert line == f"○ [1] {'x' * 47}…  +a +b +c +d +e +f and 2 more"
