"""What the side panel shows, as plain JSON values of bounded size. Names and values come from the sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.limits import DEFAULT_SESSION_MEMORY_MB, MIB
from sandbox_kernel.model import FsChange
from sandbox_kernel.notebook.line_commands import LineCommands, rights_rows
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.units import duration_text, size_text
from sandbox_kernel.notebook.page.views.changes_view import MOST_DIFF, picture_urls
from sandbox_kernel.policy.network_rule import NetworkRule
from sandbox_kernel.session.tree.node import Node, StateDiff
from sandbox_kernel.untrusted.ansi import plain

#: The most changes and states that a reply lists, names of variables at a state, and characters of a value.
MOST_CHANGES, MOST_STATES, MOST_NAMES, MOST_VALUE = 500, 500, 40, 300
_MOST_CODE = 2000


def overview(context: LineCommands) -> dict[str, object]:
    """Return the limits and rights of the notebook's next cell, and whether a session runs."""
    session = context.sandboxes.sessions.find(CellOptions())
    return {
        "session": "" if session is None else str(session.language),
        "limits": _limits(context.defaults),
        "line": f"%sandbox {context.defaults.words()}".strip(),
        "rows": [[name, text[: 4 * MOST_VALUE]] for name, text in rights_rows(context.defaults)],
    }


def _limits(options: CellOptions) -> dict[str, object]:
    """Return the five options of the dialog, as a user writes them."""
    return {
        "timeout": duration_text(options.effective_timeout_s),
        "memory": size_text((options.memory_mb or DEFAULT_SESSION_MEMORY_MB) * MIB),
        "domains": [str(NetworkRule(net.domain, (net.port,) if net.port else ())) for net in options.allow_net],
        "mounts": [f"{one.host}:{one.guest}{':rw' if one.writable else ''}" for one in options.mounts],
        "here": options.here or "",
    }


def changes(box: Sandbox) -> dict[str, object]:
    """Return what differs from the user's folder; ``named`` are those that are applied only one by one.

    ``digest`` comes back with the request to apply.
    """
    if box.here is None:
        return {"here": "", "changes": [], "more": 0, "digest": ""}
    digest, found = box.digest(), box.diff()
    named = set(box.left_out())
    listed = [_change(change, change.path in named) for change in found[:MOST_CHANGES]]
    return {"here": box.here, "changes": listed, "more": max(0, len(found) - MOST_CHANGES), "digest": digest}


def _change(change: FsChange, named: bool) -> dict[str, object]:
    told = {"path": change.path, "kind": str(change.kind), "type": str(change.type)}
    return {**told, "size": change.size, "named": named}


def change(box: Sandbox, path: str) -> dict[str, object]:
    """Return one change: its lines as a unified diff, and for a picture the one before and the one after."""
    digest = box.digest()
    (before, after) = next((picture_urls(box, one) for one in box.diff() if one.path == path), ("", ""))
    patch = "" if before or after else box.patch([path])
    told = {"patch": plain(patch[:MOST_DIFF]), "cut": len(patch) > MOST_DIFF, "before": before, "after": after}
    return {**told, "digest": digest}


def tree(nodes: Sequence[Node], cells: Mapping[int, str]) -> dict[str, object]:
    """Return the latest states; ``cells`` has the id of the notebook's cell by its number."""
    return {"nodes": [_node(node, cells) for node in nodes[-MOST_STATES:]], "more": max(0, len(nodes) - MOST_STATES)}


def _node(node: Node, cells: Mapping[int, str]) -> dict[str, object]:
    known = node.to_dict()
    for name in ("added", "changed", "removed", "unsure"):
        known[name] = [text[:MOST_VALUE] for text in getattr(node.changed, name)[:MOST_NAMES]]
    known["files"] = [[one.path[:MOST_VALUE], str(one.kind)] for one in node.changed.files[:MOST_NAMES]]
    known["unknown"] = node.changed.unknown[:MOST_VALUE]
    return {**known, "code": node.code[:_MOST_CODE], "cell": cells.get(node.number, "") if node.code else ""}


def difference(found: StateDiff) -> dict[str, object]:
    """Return how two states differ."""
    first = MOST_NAMES
    return {
        "before": found.before,
        "after": found.after,
        "added": [[name, _value(text)] for name, text in list(found.added.items())[:first]],
        "changed": [[name, _value(one.before), _value(one.after)] for name, one in list(found.changed.items())[:first]],
        "removed": [[name, _value(text)] for name, text in list(found.removed.items())[:first]],
        "unsure": list(found.unsure[:first]),
        "files": [[one.path, one.kind, plain(one.patch[: MOST_DIFF // 4])] for one in found.files[:first]],
        "unknown": [_value(text) for text in found.unknown[:first]],
    }


def _value(text: str) -> str:
    return plain(text[:MOST_VALUE])
