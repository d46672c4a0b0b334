"""A ``Sandbox`` as a backend: every run uses its work folder, and its backend is chosen by language."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from sandbox_kernel.backends.base import BackendCapabilities, SandboxBackend
from sandbox_kernel.backends.wasm.guest_images import engine_version
from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.languages.recipe import Availability
from sandbox_kernel.model import ExecRequest, ExecResult, Language, OnOutput


class BoxBackend(SandboxBackend):
    """Runs requests through a ``Sandbox``, so that files stay from run to run."""

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
        return await self.box.arun(
            request.code,
            request.language,
            timeout=request.timeout,
            memory_mb=request.memory_limit_mb,
            stdin=request.stdin,
            env=request.env,
            args=request.args,
            files=request.files,
            limits=request.limits,
            on_output=on_output,
            cancel=cancel,
        )


def _wasm() -> Availability:
    try:
        return Availability(available=True, version=engine_version(), origin="wasmtime")
    except BackendUnavailable as error:
        return Availability(available=False, reason=str(error))
