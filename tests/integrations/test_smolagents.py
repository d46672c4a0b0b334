"""smolagents: actions, tools and images on a real sandbox. A ``CodeAgent`` runs in ``test_agents_page.py``."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("smolagents", reason="smolagents is not installed; make .venv/.installed-frameworks")

from smolagents import FinalAnswerTool, tool
from smolagents.local_python_executor import InterpreterError
from smolagents.models import ChatMessage, MessageRole, Model

from sandbox_kernel.integrations.smolagents import SandboxKernelExecutor


@tool
def weather(town: str) -> str:
    """Tell the weather.

    Args:
        town: The town.
    """
    return f"sunny in {town}"


@pytest.fixture
def executor() -> Iterator[SandboxKernelExecutor]:
    made = SandboxKernelExecutor(timeout=20)
    made.send_tools({"weather": weather, "final_answer": FinalAnswerTool()})
    yield made
    made.cleanup()


def test_state_stays_values_and_prints_come_back_and_tools_run_outside(executor: SandboxKernelExecutor) -> None:
    assert executor("x = [1, 2]\nprint('hi')").logs == "hi\n"
    output = executor("x + [3]")
    assert (output.output, output.is_final_answer) == ([1, 2, 3], False)
    executor.send_variables({"numbers": [1, 2, 3], "data": b"\0"})
    assert executor("sum(numbers), data").output == (6, b"\0")
    assert executor("weather(town='Ulm')").output == "sunny in Ulm"
    with pytest.raises(InterpreterError, match="HostError: TypeError"):
        executor("weather(1, 2, 3)")


def test_a_final_answer_ends_the_action(executor: SandboxKernelExecutor) -> None:
    output = executor("final_answer({'n': 42})\nprint('never')")
    assert (output.output, output.is_final_answer, output.logs) == ({"n": 42}, True, "")
    assert not executor("1").is_final_answer


def test_errors_and_limits_are_told_and_the_state_stays(executor: SandboxKernelExecutor) -> None:
    executor("y = 1")
    with pytest.raises(InterpreterError, match="NameError: name 'z' is not defined"):
        executor("print('before'); z")
    assert executor.state["_print_outputs"] == "before\n"
    with pytest.raises(InterpreterError, match="killed"):
        executor("y = 2\nimport os; os.kill(os.getpid(), 9)")
    assert executor("y").output == 1


def test_images_go_in_and_out() -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    executor = SandboxKernelExecutor()
    try:
        executor.send_tools({"final_answer": FinalAnswerTool()})
        executor.send_variables({"picture": image.new("RGB", (4, 3), "red")})
        output = executor("final_answer(picture.resize((2, 2)))")
        assert (output.output.size, output.output.getpixel((0, 0))) == ((2, 2), (255, 0, 0))
    finally:
        executor.cleanup()


class Scripted(Model):  # type: ignore[misc]
    """A stand-in for the model: its turns, one after the other."""

    def __init__(self, *turns: str) -> None:
        super().__init__()
        self.turns = list(turns)

    def generate(self, messages: Any, **_: Any) -> ChatMessage:
        return ChatMessage(role=MessageRole.ASSISTANT, content=self.turns.pop(0))
