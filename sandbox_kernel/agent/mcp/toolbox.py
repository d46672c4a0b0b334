"""Carries out the tools of one sandbox for one user: every caller can see its files and sessions."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from typing import Annotated

from msgspec import Meta

from sandbox_kernel.agent.mcp.file_tools import FileTools
from sandbox_kernel.agent.mcp.mcp_tool import Reply, Tool, ToolCall
from sandbox_kernel.agent.mcp.permissions import DomainRights
from sandbox_kernel.agent.mcp.session_tools import SessionTools
from sandbox_kernel.agent.sandbox_tool import SandboxTool, error_answer, internal_error, with_failures
from sandbox_kernel.backends.base import BackendCapabilities, SandboxBackend
from sandbox_kernel.backends.wasm.prepare import engine_version
from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import BackendUnavailable, SandboxError
from sandbox_kernel.languages.recipe import Availability
from sandbox_kernel.model import Events, ExecRequest, ExecResult, Language, OnOutput
from sandbox_kernel.model.notes import RightAnswer, Wanted

_log = logging.getLogger(__name__)

_STATE = (
    "Each call starts anew, without variables or processes of earlier ones; the files in /box, the working folder, are "
    "shared by all calls, by sessions and by read_file, write_file and list_dir. A program that ends with another "
    'exit code than 0, or does not compile, has the status "failed" here.'
)


class Toolbox:
    """The tools of a sandbox. Use it on one event loop; it ends with the sandbox."""

    def __init__(self, box: Sandbox, *, may_apply: bool = False) -> None:
        self._rights = DomainRights(box)
        self.exec = SandboxTool(BoxBackend(box), state=_STATE)
        self._sessions = SessionTools(self._rights, lambda: self.exec.limits)
        open_world = box.policy.network or bool(box.policy.network_rules)
        run = Tool(self.sandbox_exec, "Run a program in a sandbox", open_world=open_world)
        report = Tool(self.report, "What the sandbox enforces here", read_only=True)
        sessions = self._sessions.tools(open_world=open_world)
        files = FileTools(lambda: self.box)
        here = files.here_tools(may_apply=may_apply)
        #: The tools by name, in the order in which clients list them.
        self.tools = {tool.name: tool for tool in (run, *sessions, *files.tools(), report, *here)}

    @property
    def box(self) -> Sandbox:
        """The sandbox, with what the user let programs reach until the server ends."""
        return self._rights.box

    def settle(self, wanted: Wanted, answer: RightAnswer) -> str:
        """Change the policy by what the user answered; returns what holds now."""
        told = self._rights.settle(wanted, answer, self._sessions.running())
        self.exec.backend = BoxBackend(self.box)
        return told

    async def call(self, name: str, call: ToolCall) -> Reply:
        """Call a tool by its name and return the reply. Never raises for a known name."""
        began = time.monotonic()
        try:
            return await (self.sandbox_exec(call) if name == self.exec.name else self.tools[name].call(call))
        except SandboxError as error:
            return Reply(answer=error_answer(error, time.monotonic() - began))
        except Exception as error:
            _log.exception("the tool %s failed", name)
            return Reply(answer=error_answer(internal_error(error), time.monotonic() - began))

    async def sandbox_exec(self, call: ToolCall) -> Reply:
        """Run a program: ``SandboxTool`` checks the arguments, and describes itself by what it measured."""
        results: list[ExecResult] = []
        box = self._rights.box_for_next()
        tool = self.exec if box is self.box else self.exec.on(BoxBackend(box))
        answer = await tool.execute(call.args, on_output=call.on_output, cancel=call.cancel, on_result=results.append)
        questions = self._rights.questions(results[0]) if results else ()
        return Reply(answer=with_failures(answer), questions=questions)

    async def report(
        self, call: ToolCall, again: Annotated[bool, Meta(description="Measure again; takes some seconds.")] = False
    ) -> Reply:
        """What is enforced on this host, each line measured by attacking it; the languages, and why one does not."""
        report = await asyncio.to_thread(lambda: self.box.report(again=again))
        return Reply(answer={"status": "success", **report.to_dict()})


class BoxBackend(SandboxBackend):
    """A ``Sandbox`` as a backend: files stay from run to run, and its backend is chosen by language."""

    name = "box"

    def __init__(self, box: Sandbox) -> None:
        self.box = box
        self.policy = box.policy

    def capabilities(self) -> BackendCapabilities:
        """See ``SandboxBackend``; those of the process backend, whose walls are around wasm too."""
        found = self.box.backend.capabilities()
        languages = {**found.languages, Language.WASM: _wasm()}
        return replace(found, supported_languages=self.available_languages(), languages=languages)

    def available_languages(self) -> tuple[Language, ...]:
        """See ``SandboxBackend``."""
        return (*self.box.backend.available_languages(), *([Language.WASM] if _wasm().available else []))

    async def execute(
        self, request: ExecRequest, *, on_output: OnOutput | None = None, cancel: asyncio.Event | None = None
    ) -> ExecResult:
        """See ``SandboxBackend``."""
        return await self.box.perform(request, Events(on_output=on_output), cancel or asyncio.Event())


def _wasm() -> Availability:
    try:
        return Availability(available=True, version=engine_version(), origin="wasmtime")
    except BackendUnavailable as error:
        return Availability(available=False, reason=str(error))
