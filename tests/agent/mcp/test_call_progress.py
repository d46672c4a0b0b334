"""Progress: what is printed is told while it comes, bounded and harmless."""

import asyncio

from sandbox_kernel.agent.mcp import mcp_server
from sandbox_kernel.agent.mcp.mcp_server import MOST_CHARACTERS, CallProgress


def test_output_is_told_once_and_a_silent_run_gives_signs_of_life(monkeypatch):
    monkeypatch.setattr(mcp_server, "SHORTEST_S", 0.001)
    monkeypatch.setattr(mcp_server, "LONGEST_S", 0.01)

    async def play():
        told = []
        enough = asyncio.Event()

        async def tell(done, total, message):
            told.append((done, total, message))
            if len(told) >= 4:
                enough.set()

        progress = CallProgress(9.0)
        telling = asyncio.ensure_future(progress.keep_telling(tell))
        progress.add("stdout", "one\n")
        progress.add("stderr", "two\n")
        await asyncio.wait_for(enough.wait(), 30)
        telling.cancel()
        return told

    told = asyncio.run(play())
    assert [message for _, _, message in told][:3] == ["one\ntwo\n", None, None]
    assert all(total == 9.0 for _, total, _ in told)
    numbers = [done for done, _, _ in told]
    assert numbers == sorted(set(numbers))


def test_a_flood_is_bounded_and_control_characters_are_not_obeyed():
    async def play():
        told = []

        async def tell(done, total, message):
            told.append(message)

        progress = CallProgress()
        for _ in range(1000):
            progress.add("stdout", "\x1b]52;c;x\x07" + "y" * 1000)
        assert progress.has_output.is_set()
        await progress.tell_once(tell)
        assert not progress.has_output.is_set()
        progress.add("stdout", "\x1b[2J\r\b\u202e")
        await progress.tell_once(tell)
        return told

    flood, evil = asyncio.run(play())
    assert len(flood) == MOST_CHARACTERS
    assert evil == "\ufffd[2J\ufffd\ufffd\ufffd"
