"""The OpenAI Agents SDK: its sessions on real sandboxes. Its runner runs in ``test_agents_page.py``."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="openai-agents is not installed: make .venv/.installed-frameworks")

from agents import ModelResponse, Usage
from agents.models.interface import Model
from agents.sandbox.entries import File
from agents.sandbox.errors import ExecTimeoutError, WorkspaceReadNotFoundError
from agents.sandbox.manifest import Manifest
from agents.sandbox.snapshot import LocalSnapshotSpec
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.integrations.openai_agents import SandboxKernelClient


def search(query: str) -> list[str]:
    return [f"{query} 0"]


async def test_commands_run_behind_walls_and_files_stay() -> None:
    client = SandboxKernelClient(functions={"search": search})
    async with await client.create(manifest=Manifest(entries={"a.txt": File(content=b"hello")})) as session:
        assert (await session.exec("cat", "a.txt")).stdout == b"hello"
        await session.write(Path("data/b.bin"), io.BytesIO(b"\x00\xff"))
        assert (await session.read(Path("data/b.bin"))).read() == b"\x00\xff"
        assert (await session.exec("host search x")).stdout == b'["x 0"]\n'
        failed = await session.exec("cat /root/.bashrc; ls /home; exit 3")
        assert (failed.exit_code, failed.stdout) == (3, b"")
        assert [entry.path for entry in await session.ls("data")]
        with pytest.raises(WorkspaceReadNotFoundError):
            await session.read(Path("nothing"))
        with pytest.raises(ExecTimeoutError):
            await session.exec("sleep 60", timeout=1)


async def test_a_snapshot_outlives_its_machine(tmp_path: Path) -> None:
    client = SandboxKernelClient()
    session = await client.create(snapshot=LocalSnapshotSpec(base_path=tmp_path))
    async with session:
        await session.exec("mkdir d && echo kept > d/f && ln -s f d/link")
    payload = client.serialize_session_state(session.state)
    await client.delete(session)
    async with await client.resume(client.deserialize_session_state(json.loads(json.dumps(payload)))) as again:
        assert (await again.exec("cat d/link")).stdout == b"kept\n"
        assert (await again.exec("ls")).stdout.split() == [b"d"]


async def test_a_root_elsewhere_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="below /box or /tmp"):
        await SandboxKernelClient().create(manifest=Manifest(root="/srv/work"))


class Scripted(Model):
    """A stand-in for a model: calls a tool, then says what the tool returned."""

    def __init__(self, *calls: tuple[str, dict[str, object]]) -> None:
        self.calls = list(calls)
        self.seen: list[str] = []

    async def get_response(self, **given: Any) -> ModelResponse:  # type: ignore[override]
        self.seen = [str(item["output"]) for item in given["input"] if item.get("type") == "function_call_output"]
        if self.calls:
            name, arguments = self.calls.pop(0)
            item: Any = ResponseFunctionToolCall(
                arguments=json.dumps(arguments), call_id=f"c{len(self.calls)}", name=name, type="function_call"
            )
        else:
            text = ResponseOutputText(annotations=[], text=f"done: {self.seen[-1]}", type="output_text")
            item = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:  # pragma: no cover
        raise NotImplementedError
        yield
