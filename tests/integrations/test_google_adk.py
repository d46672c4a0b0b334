"""Google ADK: its executor on real sandboxes. Its agent and runner run in ``test_agents_page.py``."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="google-adk is not installed; make .venv/.installed-frameworks")

from google.adk.code_executors.code_execution_utils import CodeExecutionInput, File
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.genai import types

from sandbox_kernel.integrations import google_adk
from sandbox_kernel.integrations.google_adk import SandboxKernelCodeExecutor


def run(executor: SandboxKernelCodeExecutor, code: str, **more: Any) -> Any:
    return executor.execute_code(None, CodeExecutionInput(code=code, **more))  # type: ignore[arg-type]


def test_code_runs_with_files_in_and_out() -> None:
    given = [File(name="in.csv", content=b"a,b\n1,2\n", mime_type="text/csv")]
    result = run(
        SandboxKernelCodeExecutor(), "open('out.txt', 'w').write(open('in.csv').read()); print(1)", input_files=given
    )
    assert (result.stdout, result.stderr, result.exit_code) == ("1\n", "", 0)
    assert [(file.name, file.content, file.mime_type) for file in result.output_files] == [
        ("out.txt", b"a,b\n1,2\n", "text/plain")
    ]


def test_failures_and_time_limits_are_in_stderr() -> None:
    assert "ZeroDivisionError" in run(SandboxKernelCodeExecutor(), "1 / 0").stderr
    assert run(SandboxKernelCodeExecutor(), "import warnings; warnings.warn('x')").stderr == ""
    late = run(SandboxKernelCodeExecutor(timeout_seconds=1), "print('so far', flush=True)\nwhile True: pass")
    assert (late.stdout, late.stderr) == ("so far\n", "time limit of 1 s exceeded")


def test_a_stateful_executor_keeps_the_variables_of_each_id() -> None:
    executor = SandboxKernelCodeExecutor(stateful=True)
    try:
        run(executor, "x = 41", execution_id="one")
        assert run(executor, "x + 1", execution_id="one").stdout == "42\n"
        assert "NameError" in run(executor, "x", execution_id="two").stderr
    finally:
        executor.close()


@pytest.mark.parametrize("stateful", [True, False])
def test_files_that_are_returned_have_a_bound_together(monkeypatch: pytest.MonkeyPatch, stateful: bool) -> None:
    monkeypatch.setattr(google_adk, "_MAX_BYTES", 3000)
    executor = SandboxKernelCodeExecutor(stateful=stateful)
    try:
        made = run(executor, "for n in 'abcd': open(n, 'w').truncate(1000)\nprint(1)")
    finally:
        executor.close()
    assert made.stdout == "1\n" and [(file.name, len(file.content)) for file in made.output_files] == [
        ("a", 1000),
        ("b", 1000),
        ("c", 1000),
    ]


CODE = "```python\nprint(6 * 7)\n```"


class Scripted(BaseLlm):  # type: ignore[misc]
    """A stand-in for the model: first code, then the answer that it read from the result."""

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        said = str(llm_request.contents)
        text = "The answer is 42." if "tool_output" in said or "code_execution_result=Code" in said else CODE
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))
