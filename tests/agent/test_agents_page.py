"""Every Python block of docs/agents.md that needs no framework is run here; ``tests/integrations`` runs the others."""

from types import SimpleNamespace

import pytest

from tests.doc_blocks import blocks, run_block

PROBLEM = {"task_id": "test/0", "prompt": "def add(a, b):\n", "entry_point": "add"}
TEST = "def check(candidate):\n    assert candidate(2, 3) == 5\n"


@pytest.mark.slow
def test_the_block_about_the_tool_runs() -> None:
    (block,) = blocks("agents.md", "## One tool")
    assert "tool" in run_block(block)


def test_the_blocks_about_host_functions_run() -> None:
    first, second = blocks("agents.md", '## Functions of yours inside ("code mode")')
    space = run_block(first, catalogue=SimpleNamespace(find=lambda query: [{"title": query}] * 9))
    result = space["result"]
    assert result.stdout == "3\n"  # type: ignore[attr-defined]
    assert [call.name for call in result.calls] == ["search"]  # type: ignore[attr-defined]
    mcp = pytest.importorskip("mcp")
    from mcp.server import MCPServer

    server, asked = MCPServer("shop"), []

    @server.tool()
    def search(query: str) -> list[str]:
        asked.append(query)
        return [query]

    # The page names a server of the web; the same client is connected to one of this test.
    run_block(f"from sandbox_kernel import Sandbox\n{second}", mcp=SimpleNamespace(Client=lambda _: mcp.Client(server)))
    assert asked == ["boats"]


def test_the_block_about_evaluators_runs(capsys: pytest.CaptureFixture[str]) -> None:
    distributed = pytest.importorskip("distributed")
    problem = {**PROBLEM, "test": TEST}
    samples = [{"task_id": "test/0", "completion": "    return a + b"}]
    (block,) = blocks("agents.md", "## Evaluators")
    with distributed.Client(n_workers=1, processes=False, dashboard_address=None):
        run_block(block, problem=problem, completion="    return a + b", problems={"test/0": problem}, samples=samples)
    assert capsys.readouterr().out == "1 1\n"
