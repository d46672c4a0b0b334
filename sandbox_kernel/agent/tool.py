"""``SandboxTool``: a backend as one tool that an agent can call.

Errors are information. Whatever the model sends and whatever becomes of the program, ``execute`` answers with the same
JSON, so that the model can read what happened and try again; it raises only when its own task is cancelled, and then
the program has ended too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict

from sandbox_kernel.agent.answer import OUTPUT_BYTES, Answer, error_answer, result_answer
from sandbox_kernel.agent.arguments import Fields, shown
from sandbox_kernel.agent.describe import MOST_TIMEOUT_S, describe, parameters_schema
from sandbox_kernel.backends.base import OnOutput, SandboxBackend
from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.limits import DEFAULT_TIMEOUT_S, Limits
from sandbox_kernel.model import ExecRequest, Language
from sandbox_kernel.policy import SandboxPolicy

_log = logging.getLogger(__name__)

FIELDS = ("language", "code", "stdin", "timeout_secs")
_NO_STATE = "Each call is a sandbox of its own: no variables, files or processes are kept between calls."


class _Watching(TypedDict, total=False):
    on_output: OnOutput
    cancel: asyncio.Event


class SandboxTool:
    """``sandbox_exec``. Many calls at once are fine; each is a sandbox of its own.

    ``state`` is the sentence of the description about what one call leaves for the next.
    """

    name = "sandbox_exec"

    def __init__(self, backend: SandboxBackend, *, output_bytes: int = OUTPUT_BYTES, state: str = _NO_STATE) -> None:
        self.backend = backend
        self.limits = Limits(output_bytes=output_bytes)
        self._state = state
        self._languages: tuple[Language, ...] | None = None

    @property
    def required_scopes(self) -> list[str]:
        """What a caller must be allowed to do."""
        return ["code:execute"]

    @property
    def languages(self) -> tuple[Language, ...]:
        """What runs here; looked up once."""
        if self._languages is None:
            self._languages = tuple(self.backend.available_languages())
        return self._languages

    @property
    def description(self) -> str:
        """What a model is told, from the backend's own measurements: the first look may take seconds."""
        policy = getattr(self.backend, "policy", None)
        known = policy if isinstance(policy, SandboxPolicy) else None
        return describe(self.backend.capabilities(), self.languages, known, self.limits, self._state)

    def parameters_schema(self) -> dict[str, object]:
        """The arguments as JSON Schema; the languages are those that run here."""
        return parameters_schema(self.languages)

    async def execute(
        self, args: object, *, on_output: OnOutput | None = None, cancel: asyncio.Event | None = None
    ) -> Answer:
        """Run a program and tell what became of it; never raises, whatever ``args`` is.

        ``on_output`` is called with each piece as it arrives; setting ``cancel`` ends the run with its output so far.
        """
        began = time.monotonic()
        try:
            if self._languages is None:
                self._languages = tuple(await asyncio.to_thread(self.backend.available_languages))
            request = make_request(args, self._languages, self.limits)
            result = await self.backend.execute(request, **_watching(on_output, cancel))
            told = replace(
                result,
                timeout=result.timeout or request.timeout,
                memory_limit_mb=result.memory_limit_mb or request.memory_mb,
            )
            return result_answer(told, self.limits.output_bytes)
        except SandboxError as error:
            return error_answer(error, time.monotonic() - began, self.limits.output_bytes)
        except Exception as error:
            # A backend that breaks its contract must not break the agent's loop; whoever runs it reads the log.
            _log.exception("the %s backend failed", self.backend.name)
            return error_answer(internal_error(error), time.monotonic() - began, self.limits.output_bytes)


def make_request(args: object, languages: Sequence[Language], limits: Limits) -> ExecRequest:
    """A call's arguments as a request, or ``InvalidRequest``; environment and memory are not the model's to choose."""
    fields = Fields(args, FIELDS)
    return ExecRequest(
        language=read_language(fields.text("language"), languages),
        code=fields.text("code"),
        timeout=fields.whole("timeout_secs", int(DEFAULT_TIMEOUT_S), 1, MOST_TIMEOUT_S),
        stdin=fields.optional_text("stdin"),
        limits=limits,
    )


def read_language(name: str, languages: Sequence[Language]) -> Language:
    """One of the languages that run here, by its name or an alias."""
    expected = f"Expected one of: {', '.join(languages)}"
    try:
        language = Language.parse(name)
    except InvalidRequest:
        raise InvalidRequest(f"unsupported language {shown(name)}. {expected}") from None
    if language not in languages:
        raise InvalidRequest(f"unsupported language {shown(name)}: it does not run on this host. {expected}")
    return language


def internal_error(error: Exception) -> SandboxError:
    """A failure that is nobody's fault but ours, as an error that can be told."""
    return SandboxError(f"internal error ({type(error).__name__}): {error}")


def _watching(on_output: OnOutput | None, cancel: asyncio.Event | None) -> _Watching:
    watching: _Watching = {}
    if on_output is not None:
        watching["on_output"] = on_output
    if cancel is not None:
        watching["cancel"] = cancel
    return watching
