"""Carries out the tools of one sandbox: runs, sessions, files and the report. Each call answers with JSON.

One toolbox serves one user: every caller can see its files and sessions. This module does not depend on MCP.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from sandbox_kernel.agent.answer import error_answer, with_failures
from sandbox_kernel.agent.arguments import Fields
from sandbox_kernel.agent.box_backend import BoxBackend
from sandbox_kernel.agent.mcp import explore_tools
from sandbox_kernel.agent.mcp import tool_specs as specs
from sandbox_kernel.agent.mcp.file_tools import FileTools
from sandbox_kernel.agent.mcp.here_tools import Act, here_tools
from sandbox_kernel.agent.mcp.permission.domain_rights import DomainAnswer, DomainRights
from sandbox_kernel.agent.mcp.session_tools import SessionTools
from sandbox_kernel.agent.mcp.tool_call import Reply, ToolCall
from sandbox_kernel.agent.mcp.tool_specs import ToolSpec
from sandbox_kernel.agent.tool import SandboxTool, internal_error
from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import ExecResult
from sandbox_kernel.model.notes import Wanted

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
        sessions = self._sessions = SessionTools(self._rights, lambda: self.exec.limits)
        files = FileTools(lambda: self.box)
        self._acts: dict[str, Callable[[ToolCall], Awaitable[Reply]]] = {
            self.exec.name: self._exec,
            "session_run": sessions.run,
            "session_undo": sessions.undo,
            explore_tools.SESSION_EXPLORE.name: sessions.explore,
            explore_tools.SESSION_KEEP.name: sessions.keep,
            "read_file": files.read,
            "write_file": files.write,
            "list_dir": files.list,
            "report": self._report,
        }
        self._here = here_tools(box, may_apply=may_apply)
        self._acts |= {name: self._on_folder(act) for name, (_, act) in self._here.items()}

    @property
    def box(self) -> Sandbox:
        """The sandbox, with what the user let programs reach until the server ends."""
        return self._rights.box

    def settle(self, wanted: Wanted, answer: DomainAnswer) -> str:
        """Change the policy by what the user answered; returns what holds now."""
        told = self._rights.settle(wanted, answer, self._sessions.running())
        self.exec.backend = BoxBackend(self.box)
        return told

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all tools."""
        return tuple(self._acts)

    async def specs(self) -> tuple[ToolSpec, ...]:
        """Return the description of each tool. The first call measures the sandbox, which takes some seconds."""
        tool = self.exec
        description = await asyncio.to_thread(lambda: tool.description)
        run = ToolSpec(
            name=tool.name,
            title="Run a program in a sandbox",
            description=description,
            parameters=tool.parameters_schema(),
            output=specs.RUN_ANSWER,
            open_world=self._open_world,
        )
        session = replace(specs.SESSION_RUN, open_world=self._open_world)
        here = (spec for spec, _ in self._here.values())
        return (
            run,
            session,
            specs.SESSION_UNDO,
            replace(explore_tools.SESSION_EXPLORE, open_world=self._open_world),
            explore_tools.SESSION_KEEP,
            specs.READ_FILE,
            specs.WRITE_FILE,
            specs.LIST_DIR,
            specs.REPORT,
            *here,
        )

    async def call(self, name: str, call: ToolCall) -> Reply:
        """Call a tool by its name and return the reply. Never raises for a known name."""
        act = self._acts[name]
        began = time.monotonic()
        try:
            return await act(call)
        except SandboxError as error:
            return Reply(answer=error_answer(error, time.monotonic() - began))
        except Exception as error:
            _log.exception("the tool %s failed", name)
            return Reply(answer=error_answer(internal_error(error), time.monotonic() - began))

    def _on_folder(self, act: Act) -> Callable[[ToolCall], Awaitable[Reply]]:
        async def answered(call: ToolCall) -> Reply:
            return Reply(answer=await act(dict(call.args)))

        return answered

    async def _exec(self, call: ToolCall) -> Reply:
        results: list[ExecResult] = []
        box = self._rights.box_for_next()
        tool = self.exec if box is self.box else self.exec.on(BoxBackend(box))
        answer = await tool.execute(call.args, on_output=call.on_output, cancel=call.cancel, on_result=results.append)
        questions = self._rights.questions(results[0]) if results else ()
        return Reply(answer=with_failures(answer), questions=questions)

    async def _report(self, call: ToolCall) -> Reply:
        again = Fields(call.args, ("again",)).flag("again")
        report = await asyncio.to_thread(lambda: self.box.report(again=again))
        return Reply(answer={"status": "success", **report.to_dict()})

    @property
    def _open_world(self) -> bool:
        return self.box.policy.network or bool(self.box.policy.network_rules)
