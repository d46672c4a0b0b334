"""The MCP tools of a sandbox that works on a folder of the user: what changed, dropping and applying it.

An agent may apply only when whoever started the server said so (``--apply``); otherwise the user takes the patch. An
agent applies ordinary content alone, and no other state of it than the one it was shown, if it says which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from sandbox_kernel.agent.mcp.permissions import Reply
from sandbox_kernel.agent.mcp.tools import OBJECTS, TEXT, Arguments, Tool, ToolCall, answer_schema
from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.model import FsChange
from sandbox_kernel.workspace.tree.paths import display_name

_MOST_PATCH = 200_000
_MOST_LISTED = 500
_BY_USER = (
    "What is left_out only the user can write: give the user the patch of folder_changes for these paths, to read and "
    "to write with: git apply FILE"
)


class Paths(Arguments, frozen=True):
    """Arguments of ``folder_changes`` and ``discard_changes``."""

    paths: Annotated[list[str] | None, Meta(description="Files or folders; all without it.")] = None


class Apply(Paths, frozen=True):
    """Arguments of ``apply_changes``."""

    shown: Annotated[str | None, Meta(description="The digest of folder_changes: another state is not written.")] = None


class HereTools:
    """The tools of a sandbox on a folder of the user."""

    def __init__(self, box: Sandbox) -> None:
        self._box = box

    def tools(self, *, may_apply: bool) -> tuple[Tool, ...]:
        """Return the tools, in the order in which clients list them; none for a sandbox that works on no folder."""
        if self._box.here is None:
            return ()
        changes = Tool(
            name="folder_changes",
            title="What changed in the user's folder",
            description=(
                "The working directory of sandbox_exec and sessions is a folder of the user, copy-on-write: nothing in "
                "it has changed yet. Lists what programs changed, with a unified diff."
            ),
            act=self.changes,
            arguments=Paths,
            output=answer_schema(changes=OBJECTS, patch=TEXT, digest=TEXT),
            read_only=True,
        )
        discard = Tool(
            name="discard_changes",
            title="Drop changes to the user's folder",
            description="Drop what programs changed; they see the user's version again.",
            act=self.discard,
            arguments=Paths,
            output=answer_schema(changes=OBJECTS),
            destructive=True,
        )
        apply = Tool(
            name="apply_changes",
            title="Write changes to the user's folder",
            description=(
                "Write what programs changed to the user's real folder, all or nothing. A conflict writes nothing. "
                "Only ordinary content is written: sources, texts, data, documents. What tools may run or obey unasked "
                "(settings, builds, files without a suffix, names with a dot, hooks and what they name) is left_out: "
                "the user writes it."
            ),
            act=self.apply,
            arguments=Apply,
            output=answer_schema(
                changes=OBJECTS, left_out={"type": "array", "items": {"type": "string"}}, message=TEXT
            ),
            destructive=True,
        )
        return (changes, discard, apply) if may_apply else (changes, discard)

    async def changes(self, asked: Paths, call: ToolCall) -> Reply:
        """Show what changed."""
        digest = self._box.digest()
        patch = await asyncio.to_thread(self._box.patch, asked.paths)
        shown = {"status": "success", "changes": _listed(self._box.diff()), "patch": patch[:_MOST_PATCH]}
        # Only of what was shown as a whole.
        whole = asked.paths is None and len(patch) <= _MOST_PATCH
        return Reply(answer={**shown, **({"digest": digest} if whole else {})})

    async def discard(self, asked: Paths, call: ToolCall) -> Reply:
        """Drop changes."""
        dropped = await asyncio.to_thread(self._box.discard, asked.paths)
        return Reply(answer={"status": "success", "changes": _listed(dropped)})

    async def apply(self, asked: Apply, call: ToolCall) -> Reply:
        """Write ordinary content, and name what only the user can write."""
        done = await asyncio.to_thread(self._box.apply, asked.paths, by_user=False, shown=asked.shown)
        left = [display_name(path) for path in self._box.left_out()[:_MOST_LISTED]]
        rest = {"left_out": left, "message": _BY_USER} if left else {}
        return Reply(answer={"status": "success", "changes": _listed(done), **rest})


def _listed(changes: Sequence[FsChange]) -> list[dict[str, object]]:
    rows = changes[:_MOST_LISTED]
    return [{"path": display_name(row.path), "kind": row.kind, "type": row.type, "size": row.size} for row in rows]
