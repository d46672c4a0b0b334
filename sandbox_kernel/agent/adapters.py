"""Describes the tool for agent frameworks, as plain dictionaries. Imports no framework.

client.chat.completions.create(tools=[openai_function(tool)], …)
client.messages.create(tools=[anthropic_tool(tool)], …)
StructuredTool(**langchain_tool_dict(tool))
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from sandbox_kernel.agent.sandbox_tool import Answer, SandboxTool, as_text, error_answer, shown
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.util.wire import no_key_twice


def openai_function(tool: SandboxTool) -> dict[str, object]:
    """Return the function tool for OpenAI's strict mode: every field is required, and optional ones may be null."""
    schema = tool.parameters_schema()
    required, properties = schema["required"], schema["properties"]
    assert isinstance(required, list)
    assert isinstance(properties, dict)
    strict = {}
    for name, field in properties.items():
        strict[name] = {key: value for key, value in field.items() if key != "default"}
        if name not in required:
            strict[name]["type"] = [field["type"], "null"]
    parameters = {**schema, "properties": strict, "required": list(strict)}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters, "strict": True}
    return {"type": "function", "function": function}


async def openai_call(tool: SandboxTool, call: Mapping[str, object]) -> dict[str, object]:
    """Run one ``tool_calls`` item (a dictionary) and return the message with its answer; never raises."""
    function = call.get("function")
    text = function.get("arguments") if isinstance(function, Mapping) else None
    try:
        args = json.loads(text, object_pairs_hook=no_key_twice) if isinstance(text, str) else None
    except (ValueError, RecursionError) as error:
        complaint = InvalidRequest(f"arguments are not JSON ({error}): {shown(text)}; send an object")
        answer = error_answer(complaint, 0.0)
    else:
        answer = await tool.execute(args)
    return {"role": "tool", "tool_call_id": call.get("id"), "content": as_text(answer)}


def anthropic_tool(tool: SandboxTool) -> dict[str, object]:
    """Return the tool for the messages API of Anthropic."""
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters_schema()}


def langchain_tool_dict(tool: SandboxTool) -> dict[str, object]:
    """Return keyword arguments for LangChain's ``StructuredTool``."""

    async def sandbox_exec(**fields: object) -> Answer:
        return await tool.execute(fields)

    return {
        "name": tool.name,
        "description": tool.description,
        "args_schema": {"title": tool.name, "description": tool.description, **tool.parameters_schema()},
        "coroutine": sandbox_exec,
    }
