"""The files of the work folder as MCP resources: ``sandbox:///data/a.csv``. A client may show or attach them.

What a file holds comes from programs: it is data, with a type by its name.
"""

from __future__ import annotations

import asyncio
import base64
import mimetypes
import urllib.parse
from typing import TYPE_CHECKING

from sandbox_kernel.agent.mcp.tool_specs import MOST_FILE_BYTES
from sandbox_kernel.agent.mcp.toolbox import Toolbox
from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.workspace.tree.paths import display_name

if TYPE_CHECKING:
    import mcp.types as types

SCHEME = "sandbox:///"
_MOST_LISTED = 500


def address_of(path: str) -> str:
    """Return the address of a file of the work folder."""
    return SCHEME + urllib.parse.quote(path, errors="surrogateescape")


def path_of(address: str) -> str:
    """Return the path that an address names. Raises ``InvalidRequest`` for another kind of address."""
    if not address.startswith(SCHEME):
        raise InvalidRequest(f"{address[:200]!r} is no file of the sandbox; addresses begin with {SCHEME}")
    return urllib.parse.unquote(address.removeprefix(SCHEME), errors="surrogateescape")


async def list_files(toolbox: Toolbox) -> types.ListResourcesResult:
    """Return the files of the work folder, the first some hundred."""
    import mcp.types as types

    held = await asyncio.to_thread(lambda: sorted((name, len(data)) for name, data in toolbox.box.files.items()))
    return types.ListResourcesResult(
        resources=[
            types.Resource(uri=address_of(path), name=display_name(path), mime_type=_kind(path), size=size)
            for path, size in held[:_MOST_LISTED]
        ]
    )


async def read_file(toolbox: Toolbox, address: str) -> types.ReadResourceResult:
    """Return a file: text where it is UTF-8, else bytes. Raises an MCP error with what is wrong."""
    import mcp.types as types
    from mcp import MCPError

    try:
        path = path_of(address)
        data, size = await asyncio.to_thread(toolbox.box.read_file_part, path, 0, MOST_FILE_BYTES)
        if size > MOST_FILE_BYTES:
            raise InvalidRequest(f"{path!r} has {size} bytes, at most {MOST_FILE_BYTES} are sent; use read_file")
    except SandboxError as error:
        raise MCPError(types.INVALID_PARAMS, str(error)) from None
    kind = _kind(path)
    try:
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=address, mime_type=kind, text=data.decode())]
        )
    except UnicodeDecodeError:
        return types.ReadResourceResult(
            contents=[types.BlobResourceContents(uri=address, mime_type=kind, blob=base64.b64encode(data).decode())]
        )


def _kind(path: str) -> str:
    return mimetypes.guess_type(path)[0] or "application/octet-stream"
