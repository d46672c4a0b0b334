"""Output after the end of its cell reaches the cell's own listener, and so much of it and no more."""

from sandbox_kernel.session.cell.displays import (
    COMM,
    MAX_CELLS,
    MAX_COMM_MESSAGES,
    MAX_LATE_MESSAGES,
    MAX_LATE_TEXT,
    BackgroundOutput,
    SessionDisplay,
)
from sandbox_kernel.session.worker.messages import DisplayShown, LateText
from sandbox_kernel.untrusted.sanitize import MAX_WORK


class Heard:
    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []
        self.shown: list[SessionDisplay] = []
        self.cuts = 0

    def text(self, stream: str, text: str) -> None:
        self.said.append((stream, text))

    def display(self, display: SessionDisplay) -> None:
        self.shown.append(display)

    def cut(self) -> None:
        self.cuts += 1


def shown(cell: int, kind: str = "display", size: int = 10) -> DisplayShown:
    data = {"text/plain": "x", "application/javascript": "alert(1)"}
    return DisplayShown(cell, 0, kind, data, {}, "name", size=size)


def test_text_reaches_its_own_cell_only() -> None:
    late, one, two = BackgroundOutput("worker"), Heard(), Heard()
    late.follow(1, one)
    late.follow(2, two)
    late.take(LateText(1, "stderr", "a"))
    late.take(LateText(3, "stdout", "to nobody"))
    assert (one.said, two.said) == ([("stderr", "a")], [])
    assert (late.knows(1), late.knows(3)) == (True, False)


def test_a_display_is_cleaned_and_belongs_to_the_life_of_the_session() -> None:
    late, heard = BackgroundOutput("worker"), Heard()
    late.follow(1, heard)
    late.take(shown(1))
    late.take(shown(1, "result"))
    late.take(shown(1, "update"))
    assert [item.kind for item in heard.shown] == ["display", "display", "update"]
    assert all(item.data == {"text/plain": "x"} and item.worker_id == "worker" for item in heard.shown)


def test_a_message_of_a_widget_is_handed_on_as_one_and_bounded() -> None:
    late, heard = BackgroundOutput("worker"), Heard()
    late.follow(1, heard)
    for _ in range(MAX_COMM_MESSAGES + 9):
        late.take(DisplayShown(1, 0, "display", {COMM: {"kind": "comm_msg"}}, {}, None, size=10))
    assert len(heard.shown) == MAX_COMM_MESSAGES
    assert {(item.kind, item.worker_id) for item in heard.shown} == {("comm", "worker")}


def test_too_much_of_any_kind_is_cut_once() -> None:
    floods = {
        "text": lambda late: [late.take(LateText(1, "stdout", "x" * (MAX_LATE_TEXT // 4))) for _ in range(9)],
        "messages": lambda late: [late.take(LateText(1, "stdout", "x")) for _ in range(MAX_LATE_MESSAGES + 9)],
        "bytes": lambda late: [late.take(shown(1, size=8 << 20)) for _ in range(9)],
    }
    for flood in floods.values():
        late, heard = BackgroundOutput("worker"), Heard()
        late.follow(1, heard)
        flood(late)
        assert heard.cuts == 1
        assert sum(len(text) for _, text in heard.said) <= MAX_LATE_TEXT
        assert len(heard.said) <= MAX_LATE_MESSAGES
        assert len(heard.shown) <= 2


def test_what_a_page_draws_after_the_end_of_a_cell_is_bounded_as_what_the_cell_shows() -> None:
    late, heard = BackgroundOutput("worker"), Heard()
    late.follow(1, heard)
    for _ in range(9):
        late.take(DisplayShown(1, 0, "display", {"text/latex": f"${'x' * 9000}$"}, {}, None, size=10))
    assert (len(heard.shown), heard.cuts) == (MAX_WORK // 180_000, 1)


def test_old_cells_are_forgotten() -> None:
    late = BackgroundOutput("worker")
    for cell in range(MAX_CELLS + 1):
        late.follow(cell, Heard())
    assert not late.knows(0)
    assert late.knows(MAX_CELLS)
