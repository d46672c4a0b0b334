"""A backend that does as it is told, and the real one."""

import asyncio
from collections.abc import Callable

import pytest

from sandbox_kernel import (
    BackendCapabilities,
    EnforcedLimits,
    Enforcement,
    ExecRequest,
    ExecResult,
    Language,
    ProcessBackend,
    ProcessConfig,
    SandboxBackend,
    SandboxTool,
    Status,
)
from sandbox_kernel.model import OnOutput

SIX = (Language.RUST, Language.PYTHON, Language.JAVASCRIPT, Language.TYPESCRIPT, Language.WASM, Language.COMMAND)


class FakeBackend(SandboxBackend):
    """Gives one result or raises one error, and remembers what it was asked."""

    name = "fake"

    def __init__(self, end: ExecResult | BaseException, languages: tuple[Language, ...] = SIX) -> None:
        self.end = end
        self.languages = languages
        self.requests: list[ExecRequest] = []

    def capabilities(self) -> BackendCapabilities:
        return BackendCapabilities(
            supported_languages=self.languages,
            isolation_class="fake",
            enforced_limits=EnforcedLimits(timeout=Enforcement(True, "a clock", "it rang")),
        )

    async def execute(
        self, request: ExecRequest, *, on_output: OnOutput | None = None, cancel: asyncio.Event | None = None
    ) -> ExecResult:
        self.requests.append(request)
        if isinstance(self.end, BaseException):
            raise self.end
        return self.end


OK = ExecResult(stdout="hello\n", exit_code=0, duration=0.25, status=Status.OK, timeout=30.0, memory_limit_mb=2048)

Answers = Callable[..., dict[str, object]]


@pytest.fixture(scope="module")
def answers() -> Answers:
    """What the tool answers to arguments, over a fake backend that ends in a given way."""

    def ask(args: object, end: ExecResult | BaseException = OK) -> dict[str, object]:
        return asyncio.run(SandboxTool(FakeBackend(end)).execute(args))

    return ask


@pytest.fixture(scope="session")
def process_tool() -> SandboxTool:
    """The tool over the process backend, no spare sandboxes."""
    return SandboxTool(ProcessBackend(ProcessConfig(pool_size=0)))
