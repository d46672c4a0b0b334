"""The history answers as the protocol describes it."""

import pytest

from sandbox_kernel.notebook.editor import MAX_ENTRIES, History, HistoryEntry


@pytest.fixture
def history():
    made = History()
    for line, source in enumerate(["a = 1", "b = 2", "a = 1", "print(a)"], 1):
        made.add(HistoryEntry(line, source, "1" if line == 4 else None))
    return made


def test_the_tail_is_the_last_cells_oldest_first(history):
    assert history.tail(2) == [(1, 3, "a = 1"), (1, 4, "print(a)")]
    assert history.tail(99)[0] == (1, 1, "a = 1")
    assert history.tail(0) == []
    assert history.tail(-3) == []


def test_outputs_come_in_pairs_when_asked_for(history):
    assert history.tail(1, output=True) == [(1, 4, ("print(a)", "1"))]


def test_a_range_excludes_its_stop_and_other_sessions_are_empty(history):
    assert [row[1] for row in history.range(0, 2, 4)] == [2, 3]
    assert [row[1] for row in history.range(1, 3, None)] == [3, 4]
    assert history.range(7, 1, None) == []


def test_a_search_is_a_glob_over_the_whole_cell(history):
    assert [row[1] for row in history.search("a*", None)] == [1, 3]
    assert [row[1] for row in history.search("*a*", 1)] == [4]
    assert [row[1] for row in history.search("a = ?", None, unique=True)] == [3]
    assert history.search("[", None) == []


def test_old_cells_are_forgotten():
    history = History()
    for line in range(MAX_ENTRIES + 5):
        history.add(HistoryEntry(line, "x"))
    assert len(history.tail(10**6)) == MAX_ENTRIES
