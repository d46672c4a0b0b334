"""The MCP tools of a sandbox that works on a folder of the user: what changed, dropping and applying it.

An agent may apply only when whoever started the server said so (``--apply``); otherwise the user takes the patch. An
agent applies ordinary content alone, and no other state of it than the one it was shown, if it says which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from sandbox_kernel.agent.arguments import Fields
from sandbox_kernel.agent.mcp.tool_specs import ToolSpec, answer_schema, object_schema
from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.model import FsChange
from sandbox_kernel.workspace.tree.paths import display_name

_MOST_PATCH = 200_000
_MOST_LISTED = 500
_BY_USER = (
    "What is left_out only the user can write: give the user the patch of folder_changes for these paths, to read and "
    "to write with: git apply FILE"
)
_PATHS: dict[str, object] = {
    "type": "array",
    "items": {"type": "string"},
    "description": "Files or folders; all without it.",
}

FOLDER_CHANGES = ToolSpec(
    name="folder_changes",
    title="What changed in the user's folder",
    description=(
        "The working directory of sandbox_exec and sessions is a folder of the user, copy-on-write: nothing in it has "
        "changed yet. Lists what programs changed, with a unified diff."
    ),
    parameters=object_schema([], paths=_PATHS),
    output=answer_schema(
        changes={"type": "array", "items": {"type": "object"}}, patch={"type": "string"}, digest={"type": "string"}
    ),
    read_only=True,
)
DISCARD_CHANGES = ToolSpec(
    name="discard_changes",
    title="Drop changes to the user's folder",
    description="Drop what programs changed; they see the user's version again.",
    parameters=object_schema([], paths=_PATHS),
    output=answer_schema(changes={"type": "array", "items": {"type": "object"}}),
    destructive=True,
)
APPLY_CHANGES = ToolSpec(
    name="apply_changes",
    title="Write changes to the user's folder",
    description=(
        "Write what programs changed to the user's real folder, all or nothing. A conflict writes nothing. Only "
        "ordinary content is written: sources, texts, data, documents. What tools may run or obey unasked (settings, "
        "builds, files without a suffix, names with a dot, hooks and what they name) is left_out: the user writes it."
    ),
    parameters=object_schema(
        [],
        paths=_PATHS,
        shown={"type": "string", "description": "The digest of folder_changes: another state is not written."},
    ),
    output=answer_schema(
        changes={"type": "array", "items": {"type": "object"}},
        left_out={"type": "array", "items": {"type": "string"}},
        message={"type": "string"},
    ),
    destructive=True,
)

Act = Callable[[dict[str, object]], Awaitable[dict[str, object]]]


def here_tools(box: Sandbox, *, may_apply: bool) -> dict[str, tuple[ToolSpec, Act]]:
    """Return the tools by name; none for a sandbox that works on no folder."""
    if box.here is None:
        return {}

    async def changes(args: dict[str, object]) -> dict[str, object]:
        paths, digest = _paths(args), box.digest()
        patch = await asyncio.to_thread(box.patch, paths)
        told: dict[str, object] = {"status": "success", "changes": _listed(box.diff()), "patch": patch[:_MOST_PATCH]}
        # Only of what was shown as a whole.
        if paths is None and len(patch) <= _MOST_PATCH:
            told["digest"] = digest
        return told

    async def discard(args: dict[str, object]) -> dict[str, object]:
        return {"status": "success", "changes": _listed(await asyncio.to_thread(box.discard, _paths(args)))}

    async def apply(args: dict[str, object]) -> dict[str, object]:
        args = dict(args)
        shown = args.pop("shown", None)
        if not isinstance(shown, str | None):
            raise InvalidRequest('"shown" must be the digest of folder_changes')
        return await asyncio.to_thread(_applied, box, _paths(args), shown)

    found: dict[str, tuple[ToolSpec, Act]] = {
        FOLDER_CHANGES.name: (FOLDER_CHANGES, changes),
        DISCARD_CHANGES.name: (DISCARD_CHANGES, discard),
    }
    if may_apply:
        found[APPLY_CHANGES.name] = (APPLY_CHANGES, apply)
    return found


def _applied(box: Sandbox, paths: list[str] | None, shown: str | None) -> dict[str, object]:
    done = _listed(box.apply(paths, by_user=False, shown=shown))
    left = [display_name(path) for path in box.left_out()[:_MOST_LISTED]]
    rest = {"left_out": left, "message": _BY_USER} if left else {}
    return {"status": "success", "changes": done, **rest}


def _paths(args: dict[str, object]) -> list[str] | None:
    Fields(args, ("paths",))
    given = args.get("paths")
    if given is None:
        return None
    if not isinstance(given, list) or not all(isinstance(path, str) for path in given):
        raise InvalidRequest('"paths" must be a list of paths')
    return given


def _listed(changes: Sequence[FsChange]) -> list[dict[str, object]]:
    rows = changes[:_MOST_LISTED]
    return [{"path": display_name(row.path), "kind": row.kind, "type": row.type, "size": row.size} for row in rows]
