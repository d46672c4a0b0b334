"""Variables that no file can hold are made again by their cell only where that makes the same value."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox_kernel import Sandbox, SandboxPolicy
from sandbox_kernel.session.python_state import PythonSession


@pytest.fixture
def session() -> Iterator[PythonSession]:
    with Sandbox(SandboxPolicy().allow_process_spawn()) as box:
        made = box.session()
        assert isinstance(made, PythonSession)
        yield made


def run(session: PythonSession, *codes: str) -> None:
    for code in codes:
        result = session.run(code)
        assert result.ok, result.stderr


def value(session: PythonSession, expression: str) -> str:
    result = session.run(expression)
    assert result.ok, result.stderr
    return str(result.displays[-1].data["text/plain"])


def test_a_variable_is_not_made_again_from_another_value_of_what_its_cell_read(session: PythonSession) -> None:
    run(session, "n = 5", "g = (i for i in range(n))", "m = 1")
    assert session.fork().restored.recomputed == ("g",)
    run(session, "n = 7")
    report = session.fork().restored
    assert not report.recomputed and list(report.lost) == ["g"]


@pytest.mark.parametrize("change", ["size = 7", "sizes[0] = 7", "def many(): return 7", "Box.size = 7"])
def test_what_a_called_function_reads_belongs_to_it(session: PythonSession, change: str) -> None:
    run(
        session,
        "size = 5; sizes = [5]",
        "class Box: size = 5",
        "def many(): return size + sizes[0] + Box.size",
        "def more(): return many()",
        "g = (i for i in range(more()))",
    )
    assert session.fork().restored.recomputed == ("g",)
    run(session, change)
    assert list(session.fork().restored.lost) == ["g"]


def test_a_consumed_generator_that_another_one_reads_is_not_begun_anew(session: PythonSession) -> None:
    run(session, "first = (i for i in range(5))", "second = (i * 2 for i in first)", "seen = next(first)")
    assert sorted(session.fork().restored.lost) == ["first", "second"]


def test_what_one_cell_made_stays_together(session: PythonSession) -> None:
    run(session, "k = 2", "lines = []; one = two = (line * k for line in lines)")
    with session.fork() as other:
        assert other.restored.recomputed == ("one", "two")
        assert "lines" in other.restored.stored
        run(other, "lines.append(1); k = 100")
        assert value(other, "one is two, list(one), lines, k") == "(True, [100], [1], 100)"
