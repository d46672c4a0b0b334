"""The tool in the shapes of agent frameworks."""

import asyncio
import json

import jsonschema
import pytest

from sandbox_kernel import SandboxTool
from sandbox_kernel.agent.adapters import anthropic_tool, langchain_tool_dict, openai_call, openai_function

from .conftest import OK, FakeBackend

CALL = {"language": "python", "code": "print(1)"}


@pytest.fixture
def tool() -> SandboxTool:
    return SandboxTool(FakeBackend(OK))


def test_the_openai_function_is_strict_json(tool: SandboxTool):
    wrapped = openai_function(tool)
    json.dumps(wrapped)
    function = wrapped["function"]
    assert (wrapped["type"], function["name"], function["strict"]) == ("function", "sandbox_exec", True)
    parameters = function["parameters"]
    jsonschema.Draft202012Validator.check_schema(parameters)
    assert parameters["required"] == list(parameters["properties"])
    assert parameters["additionalProperties"] is False
    assert "default" not in json.dumps(parameters["properties"])
    full = {**CALL, "stdin": None, "timeout_secs": None}
    jsonschema.validate(full, parameters)
    assert asyncio.run(tool.execute(full))["status"] == "success"


def test_an_openai_call_is_answered_by_a_message(tool: SandboxTool):
    call = {"id": "call_1", "type": "function", "function": {"name": "sandbox_exec", "arguments": json.dumps(CALL)}}
    message = asyncio.run(openai_call(tool, call))
    assert (message["role"], message["tool_call_id"]) == ("tool", "call_1")
    assert json.loads(message["content"])["stdout"] == "hello\n"


@pytest.mark.parametrize("arguments", ["{", "", None, "[" * 100_000, "[]", "7"])
def test_arguments_that_are_no_object_are_told(tool: SandboxTool, arguments: object):
    message = asyncio.run(openai_call(tool, {"id": "call_1", "function": {"arguments": arguments}}))
    answer = json.loads(message["content"])
    assert answer["status"] == "error"
    assert "arguments" in answer["stderr"]


def test_the_anthropic_tool_has_its_schema(tool: SandboxTool):
    wrapped = anthropic_tool(tool)
    assert set(wrapped) == {"name", "description", "input_schema"}
    assert wrapped["input_schema"] == tool.parameters_schema()


def test_the_langchain_keywords_hold_a_schema_and_a_coroutine(tool: SandboxTool):
    keywords = langchain_tool_dict(tool)
    assert set(keywords) == {"name", "description", "args_schema", "coroutine"}
    jsonschema.Draft202012Validator.check_schema(keywords["args_schema"])
    assert asyncio.run(keywords["coroutine"](**CALL))["stdout"] == "hello\n"
    assert asyncio.run(keywords["coroutine"](nonsense=1))["status"] == "error"
