"""Who is asked by ``input()``: functions of one or two arguments, and answers that no program could read."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel import InvalidRequest, ProcessConfig, Sandbox
from sandbox_kernel.jail.input_prompts import takes_prompt_alone


class Both:
    def __call__(self, prompt: str, password: bool = False) -> str:
        return prompt


@pytest.mark.parametrize(
    ("ask", "alone"),
    [
        (lambda prompt: "", True),
        (lambda prompt, password: "", False),
        (lambda prompt, password=False: "", False),
        (lambda *words: "", False),
        (Both(), False),
        (input, True),
        (print, False),
        (lambda: "", False),
    ],
)
def test_a_function_that_takes_only_the_prompt_gets_only_the_prompt(ask: Callable[..., str], alone: bool) -> None:
    assert takes_prompt_alone(ask) is alone


def test_answers_of_every_kind_reach_the_cell_and_the_next_cell_runs(nothing_left: None) -> None:
    with Sandbox(config=ProcessConfig(pool_size=0)) as box, box.session() as session:
        assert session.run("print(input('? '))", on_input=lambda prompt: f"to {prompt}").stdout == "to ? \n"  # type: ignore[arg-type,misc]
        assert session.run("print(input())", on_input=lambda prompt, password: "\ud800").stdout == "?\n"
        gone = session.run("input()", on_input=lambda prompt, password: None)  # type: ignore[arg-type,return-value]
        assert gone.error is not None
        assert gone.error.ename == "EOFError"
        assert session.run("print('next')", timeout=5).stdout == "next\n"


def test_what_cannot_be_called_or_asked_is_refused_before_the_cell_runs(nothing_left: None, tmp_path: Path) -> None:
    with Sandbox(config=ProcessConfig(pool_size=0)) as box, box.session() as session:
        for name in ("on_output", "on_input", "on_display", "on_usage"):
            with pytest.raises(InvalidRequest, match=f"{name} must be a function, got 5"):
                session.run("x = 1", **{name: 5})
        with pytest.raises(InvalidRequest, match="lone surrogate"):
            session.complete("\ud800", 1)
        assert session.complete("x" * (2 << 20), 1)["matches"] == []
        assert not session.run("x").ok
        session.write_file(Path("a.txt"), "text")
        assert session.read_file(Path("a.txt")) == b"text"
