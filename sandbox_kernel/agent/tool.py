"""``SandboxTool``: a backend as one tool that an agent can call.

``execute`` always answers with the same JSON fields, also for bad arguments and failed programs, so that the model can
read what happened and try again. It raises only when its own task is cancelled; the program has ended then.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypedDict

from sandbox_kernel.agent.answer import OUTPUT_BYTES, Answer, error_answer, result_answer, with_hints
from sandbox_kernel.agent.arguments import Fields, shown
from sandbox_kernel.agent.describe import MOST_TIMEOUT_S, describe, parameters_schema
from sandbox_kernel.backends.base import SandboxBackend
from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.limits import DEFAULT_TIMEOUT_S, Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Language, OnOutput, Status
from sandbox_kernel.policy import SandboxPolicy

_log = logging.getLogger(__name__)

FIELDS = ("language", "code", "stdin", "timeout_secs")
_NO_STATE = "Each call is a sandbox of its own: no variables, files or processes are kept between calls."


class _Watching(TypedDict, total=False):
    on_output: OnOutput
    cancel: asyncio.Event


class SandboxTool:
    """The tool ``sandbox_exec``. Safe for calls at the same time; each runs in a sandbox of its own.

    Args:
        backend: The backend that runs the programs.
        output_bytes: Most bytes of each output stream in an answer.
        state: Sentence of the description that says what is kept between calls.

    """

    name = "sandbox_exec"

    def __init__(self, backend: SandboxBackend, *, output_bytes: int = OUTPUT_BYTES, state: str = _NO_STATE) -> None:
        self.backend = backend
        self.limits = Limits(output_bytes=output_bytes)
        self._state = state
        self._languages: tuple[Language, ...] | None = None

    def on(self, backend: SandboxBackend) -> SandboxTool:
        """Return this tool on another backend that runs the same languages."""
        other = copy.copy(self)
        other.backend = backend
        return other

    @property
    def required_scopes(self) -> list[str]:
        """The permissions that a caller needs."""
        return ["code:execute"]

    @property
    def languages(self) -> tuple[Language, ...]:
        """The languages that run here; looked up once."""
        if self._languages is None:
            self._languages = tuple(self.backend.available_languages())
        return self._languages

    @property
    def description(self) -> str:
        """The description for a model, from measurements of the backend. The first access may take seconds."""
        policy = getattr(self.backend, "policy", None)
        known = policy if isinstance(policy, SandboxPolicy) else None
        return describe(self.backend.capabilities(), self.languages, known, self.limits, self._state)

    def parameters_schema(self) -> dict[str, object]:
        """Return the arguments as JSON Schema, with the languages that run here."""
        return parameters_schema(self.languages)

    async def execute(
        self,
        args: object,
        *,
        on_output: OnOutput | None = None,
        cancel: asyncio.Event | None = None,
        on_result: Callable[[ExecResult], None] | None = None,
    ) -> Answer:
        """Run a program and return the answer. Never raises, for any ``args``.

        Args:
            args: Arguments of the call, as ``parameters_schema`` describes them.
            on_output: Called as ``on_output(stream, text)`` on this event loop while output arrives.
            cancel: Setting this event ends the run; the answer has the output so far.
            on_result: Called with the result before it becomes the answer.

        """
        began = time.monotonic()
        try:
            if self._languages is None:
                self._languages = tuple(await asyncio.to_thread(self.backend.available_languages))
            request = make_request(args, self._languages, self.limits)
            result = await self.backend.execute(request, **_watching(on_output, cancel))
            complete = replace(
                result,
                timeout=result.timeout or request.timeout,
                memory_limit_mb=result.memory_limit_mb or request.memory_mb,
            )
            if on_result is not None:
                on_result(complete)
            # The words about a limit are the contract's own, in stderr.
            told = complete if result.status in (Status.TIMEOUT, Status.MEMORY_EXCEEDED) else with_hints(complete)
            return result_answer(told, self.limits.output_bytes)
        except SandboxError as error:
            return error_answer(error, time.monotonic() - began, self.limits.output_bytes)
        except Exception as error:
            # A bug in a backend must not end the agent; the log has the traceback.
            _log.exception("the %s backend failed", self.backend.name)
            return error_answer(internal_error(error), time.monotonic() - began, self.limits.output_bytes)


def make_request(args: object, languages: Sequence[Language], limits: Limits) -> ExecRequest:
    """Return the request for the arguments of a call. A model cannot choose environment or memory."""
    fields = Fields(args, FIELDS)
    return ExecRequest(
        language=read_language(fields.text("language"), languages),
        code=fields.text("code"),
        timeout=fields.whole("timeout_secs", int(DEFAULT_TIMEOUT_S), 1, MOST_TIMEOUT_S),
        stdin=fields.optional_text("stdin"),
        limits=limits,
    )


def read_language(name: str, languages: Sequence[Language]) -> Language:
    """Return a language that runs here by its name or alias. Raises ``InvalidRequest`` otherwise."""
    expected = f"Expected one of: {', '.join(languages)}"
    try:
        language = Language.parse(name)
    except InvalidRequest:
        raise InvalidRequest(f"unsupported language {shown(name)}. {expected}") from None
    if language not in languages:
        raise InvalidRequest(f"unsupported language {shown(name)}: it does not run on this host. {expected}")
    return language


def internal_error(error: Exception) -> SandboxError:
    """Wrap an unexpected exception of ours in a ``SandboxError`` with a message for the user."""
    return SandboxError(f"internal error ({type(error).__name__}): {error}")


def _watching(on_output: OnOutput | None, cancel: asyncio.Event | None) -> _Watching:
    watching: _Watching = {}
    if on_output is not None:
        watching["on_output"] = on_output
    if cancel is not None:
        watching["cancel"] = cancel
    return watching
