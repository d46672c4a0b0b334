"""The tools ``read_file``, ``write_file`` and ``list_dir``: files of the folder that programs and sessions share."""

from __future__ import annotations

import asyncio
import base64
import binascii
import codecs
import threading
from collections.abc import Callable

from sandbox_kernel.agent.answer import Answer, storable
from sandbox_kernel.agent.arguments import Fields
from sandbox_kernel.agent.mcp import tool_specs as specs
from sandbox_kernel.agent.mcp.tool_call import Reply, ToolCall
from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.workspace.transfer import MAX_PACKED_BYTES, MAX_PACKED_FILES, PackedFiles

_MOST_ENTRIES = 1000


class FileTools:
    """Reads and writes files of a sandbox; ``box`` returns the one that holds now."""

    def __init__(self, box: Callable[[], Sandbox]) -> None:
        self._box = box
        self._writing = threading.Lock()

    async def read(self, call: ToolCall) -> Reply:
        """Read a file, or a part of it."""
        fields = Fields(call.args, ("path", "offset", "max_bytes"))
        path, offset = fields.text("path"), fields.whole("offset", 0, 0, 1 << 62)
        most = fields.whole("max_bytes", specs.DEFAULT_READ_BYTES, 1, specs.MOST_FILE_BYTES)
        part, size = await asyncio.to_thread(self._box().read_file_part, path, offset, most)
        content, encoding, taken = _as_text(part)
        answer: Answer = {"status": "success", "content": content, "encoding": encoding, "size": size}
        if part and offset + taken < size:
            answer["next_offset"] = offset + taken
        return Reply(answer=answer)

    async def write(self, call: ToolCall) -> Reply:
        """Write a whole file."""
        fields = Fields(call.args, ("path", "content", "encoding"))
        path, content = fields.text("path"), fields.text("content")
        data = _as_bytes(content, fields.choice("encoding", specs.ENCODINGS[0], specs.ENCODINGS))
        if len(data) > specs.MOST_FILE_BYTES:
            most = specs.MOST_FILE_BYTES
            raise InvalidRequest(f"content has {len(data)} bytes, at most {most} are taken; write it from code")
        await asyncio.to_thread(self._put, path, data)
        return Reply(answer={"status": "success", "size": len(data)})

    def _put(self, path: str, data: bytes) -> None:
        """Write a file if the folder then still fits into a sandbox: a larger folder would make all later runs fail."""
        with self._writing:
            held = self._box().files
            names = set(held) - {path}
            total = held.total_bytes if isinstance(held, PackedFiles) else 0
            if total + len(data) > MAX_PACKED_BYTES or len(names) >= MAX_PACKED_FILES:
                raise InvalidRequest(
                    f"the shared folder holds {len(names)} files and {total} bytes, at most {MAX_PACKED_FILES} and "
                    f"{MAX_PACKED_BYTES} are taken; remove files from code first"
                )
            self._box().write_file(path, data)

    async def list(self, call: ToolCall) -> Reply:
        """List a folder."""
        path = Fields(call.args, ("path",)).optional_text("path")
        found = await asyncio.to_thread(self._box().list_dir, path if path is not None else ".")
        listed = [
            {"name": each.name, "type": each.type, **({"size": each.size} if each.is_file else {})}
            for each in found[:_MOST_ENTRIES]
        ]
        answer: Answer = {"status": "success", "entries": storable(listed)}
        if len(found) > len(listed):
            answer["left_out"] = len(found) - len(listed)
        return Reply(answer=answer)


def _as_text(data: bytes) -> tuple[str, str, int]:
    """Return part of a file as text or base64, and its number of bytes; no character is cut in two."""
    try:
        text, taken = codecs.utf_8_decode(data, "strict", False)
    except UnicodeDecodeError:
        taken = 0
    if data and not taken:
        return base64.b64encode(data).decode(), "base64", len(data)
    return text, "utf-8", taken


def _as_bytes(content: str, encoding: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True) if encoding == "base64" else content.encode()
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"content is not {encoding}: {error}") from None
