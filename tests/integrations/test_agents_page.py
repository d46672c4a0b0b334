"""The blocks of docs/agents.md about frameworks are run as they stand, with a scripted stand-in for each model."""

from pathlib import Path
from typing import Any

import pytest

from tests.doc_blocks import blocks, run_block

HEADING = "## In agent frameworks"


def block_with(name: str) -> str:
    (found,) = [block for block in blocks("agents.md", HEADING) if name in block]
    return found


def test_every_block_is_run_here() -> None:
    named = ("inspect_ai", "deepagents", "smolagents", "google_adk", "openai_agents", "mini_swe_agent")
    assert sorted(map(block_with, [f"integrations.{name}" for name in named])) == sorted(blocks("agents.md", HEADING))


def test_the_block_about_inspect_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.solver import generate, use_tools
    from inspect_ai.tool import bash

    turns = [
        ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "echo $((6 * 7))"}),
        ModelOutput.from_content("mockllm/model", "42"),
    ]
    monkeypatch.chdir(tmp_path)  # it writes its logs there
    for turn in turns:
        turn.usage = ModelUsage()
    space = run_block(
        block_with("inspect_ai"),
        dataset=[Sample(input="6 * 7?")],
        solver=[use_tools(bash()), generate()],
        model=get_model("mockllm/model", custom_outputs=turns),
    )
    (log,) = space["logs"]  # type: ignore[misc]
    assert [message.text for message in log.samples[0].messages if message.role == "tool"] == ["42\n"]


def test_the_block_about_deepagents_runs() -> None:
    from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
    from langchain_core.messages import AIMessage

    class Scripted(FakeMessagesListChatModel):  # type: ignore[misc]
        def bind_tools(self, tools: Any, **_: Any) -> Any:
            return self

    call = {"name": "execute", "args": {"command": "echo $((6 * 7))"}, "id": "1"}
    model = Scripted(responses=[AIMessage(content="", tool_calls=[call]), AIMessage(content="done")])
    state: Any = run_block(block_with("deepagents"), model=model)["state"]
    assert state["messages"][-2].content.startswith("42\n")


def test_the_block_about_smolagents_runs() -> None:
    from tests.integrations.test_smolagents import Scripted, weather

    model = Scripted("Thought: answer\n<code>\nfinal_answer(weather('Ulm'))\n</code>")
    assert run_block(block_with("smolagents"), model=model, weather=weather)["answer"] == "sunny in Ulm"


def test_the_block_about_google_adk_runs() -> None:
    from tests.integrations.test_google_adk import Scripted

    events: Any = run_block(block_with("google_adk"), model=Scripted(model="scripted"))["events"]
    assert events[-1].content.parts[-1].text == "The answer is 42."


def test_the_block_about_openai_agents_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.integrations.test_openai_agents import Scripted

    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    model = Scripted(("exec_command", {"cmd": "echo $((6 * 7))"}))
    result: Any = run_block(block_with("openai_agents"), model=model)["result"]
    assert "42" in result.final_output


def test_the_block_about_mini_swe_agent_runs() -> None:
    from minisweagent.models.test_models import DeterministicModel, make_output

    command = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo $((6 * 7))"
    model = DeterministicModel(outputs=[make_output("done", [{"command": command}])])
    done: Any = run_block(block_with("mini_swe_agent"), model=model)["done"]
    assert done["submission"] == "42\n"
