"""Which limits the status bar names, and that it claims none that nobody told."""

import pytest

from sandbox_kernel.notebook.options.option_table import OPTIONS, Option
from tests.labextension.conftest import Evaluate

RUN_30S = {"timeout_s": 30, "memory_limit_mb": 2048}


def cell(source: str, count: int | None = None, *receipts: object) -> dict[str, object]:
    return {"source": source, "executionCount": count, "receipts": list(receipts)}


def brief(evaluate: Evaluate, active: str, *cells: object, every_cell: bool = False) -> object:
    expression = "((l) => l && limitsText(l).brief)(limitsInForce(values[0], values[1], values[2]))"
    return evaluate("limits.js", expression, active, list(cells), every_cell)


@pytest.mark.parametrize(
    ("active", "cells", "shown"),
    [
        ("%%sandbox rs --timeout 500ms --memory 64M", [("x", 1, RUN_30S)], "rust · 500 ms · 64 MB"),
        ("%%sandbox", [("%%sandbox", 1, RUN_30S), ("%sandbox --timeout 2s", 2)], "python · 2 s · 2 GB"),
        ("%%sandbox", [("%sandbox ts", 1), ("%sandbox report", 2)], "typescript · default limits"),
        ("%%sandbox", [("%sandbox --timeout 2s",)], "python · default limits"),
        ("%%sandbox js --memory 64M", [("x", 2, RUN_30S), ("x", 1, {"timeout_s": 5})], "javascript · 30 s · 64 MB"),
        ("%%sandbox", [("%%sandbox --timeout 30s", 1, RUN_30S)], "python · 2 GB"),
        ("%%sandbox brainwave --timeout 5parsecs", [], "unknown language brainwave · 5parsecs?"),
        ("%%sandbox --arg '1 · no network'", [], "python · default limits · --arg '1 · no network'"),
        ("%%sandbox \u202e --cpu \u202e", [], "unknown language \ufffd · default limits · --cpu '\ufffd'"),
    ],
    ids=[
        "the cell's own options first", "a default after the last run", "a language", "a line that was not run",
        "other limits are those of the last run", "a run that set its own limit tells nothing about the default",
        "a value that cannot be read is marked", "what a cell sets is shown as it is written", "nothing is invisible",
    ],
)  # fmt: skip
def test_what_is_in_force_is_shown(
    evaluate: Evaluate, active: str, cells: list[tuple[object, ...]], shown: str
) -> None:
    assert brief(evaluate, active, *(cell(*each) for each in cells)) == f"Sandbox · {shown}"


def test_a_run_beside_its_session_tells_nothing_about_the_session(evaluate: Evaluate) -> None:
    apart = {**RUN_30S, "note_kinds": ["more_memory", "fresh_sandbox"]}
    own = {**RUN_30S, "memory_limit_mb": 512, "note_kinds": ["another", 7]}
    ran = (cell("%%sandbox", 1, own), cell("%%sandbox --mount data:/data", 2, apart))
    assert brief(evaluate, "%%sandbox", *ran) == "Sandbox · python · 30 s · 512 MB"


def test_a_reset_forgets_the_defaults_before_it(evaluate: Evaluate) -> None:
    before, reset = cell("%sandbox js --timeout 2s", 1), cell("%sandbox reset\n%sandbox --memory 64M", 2)
    assert brief(evaluate, "%%sandbox", before, reset) == "Sandbox · python · 64 MB"
    assert brief(evaluate, "%%sandbox", before, cell("%sandbox reset --memory 64M", 2)) == "Sandbox · python · 64 MB"


@pytest.mark.parametrize("told", [None, "text", [], {"timeout_s": "1"}, {"timeout_s": -1}, {"memory_limit_mb": True}])
def test_a_receipt_that_is_nonsense_tells_nothing(evaluate: Evaluate, told: object) -> None:
    assert brief(evaluate, "%%sandbox", cell("%%sandbox", 1, told)) == "Sandbox · python · default limits"


@pytest.mark.parametrize("option", [option for option in OPTIONS if not option.harmless], ids=lambda one: one.name)
def test_each_right_that_a_cell_asks_for_is_shown_with_its_limits(evaluate: Evaluate, option: Option) -> None:
    words = option.name if option.is_flag else f"{option.name} x"
    assert brief(evaluate, f"%%sandbox {words}") == f"Sandbox · python · default limits · {words}"


@pytest.mark.parametrize("word", ["a ", "-i a ", f"--arg={99 * 'x'} ", "a\n%sandbox "])
def test_a_huge_line_holds_up_no_page(evaluate: Evaluate, word: str) -> None:
    shown = "((began, text) => [text.length < 6000, performance.now() - began < 1500])"
    many = [cell(f"{mark}sandbox {(500 * word)[:5000]}\n" * 5, 2, {"timeout_s": 1}) for mark in ("%", "%%")] * 100
    for source in (f"%%sandbox {50_000 * word}", f"%sandbox {50_000 * word}"):
        told = f"{shown}(performance.now(), limitsText(limitsInForce(values[0], values[1], true)).brief)"
        assert evaluate("limits.js", told, source, [cell(source, 1, {}), *many]) == [True, True]


def test_a_cell_without_the_magic_is_a_sandbox_cell_only_in_the_sandbox_kernel(evaluate: Evaluate) -> None:
    assert brief(evaluate, "print(1)") is None
    assert brief(evaluate, "print(1)", every_cell=True) == "Sandbox · python · default limits"
