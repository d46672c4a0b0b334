"""Draw the pictures of ``architecture.md`` as SVG: the floors, and the walk of one cell. Pure functions.

``generate.py`` writes them. Every path in a picture is a file of the package; ``tests/test_docs.py`` checks that.
"""

from __future__ import annotations

from html import escape

#: The floors, top to bottom: room, what it is for. A room imports only rooms below it.
FLOORS = (
    ("commands · wrapped · notebook · agent", "the doors: command line, wrapped kernels, notebook, HTTP, MCP"),
    ("integrations · evals", "interfaces of agent frameworks and of evaluators"),
    ("box · report", "the Sandbox object, and the list of what is enforced here"),
    ("session", "state between cells, checkpoints, undo"),
    ("untrusted", "what came out of a sandbox, made inert for a page"),
    ("backends", "process, wasm, dask; host functions; what was measured; how a run ended"),
    ("languages", "one recipe a file"),
    ("jail", "walls, meters, streams, pool: the only room that starts a child"),
    ("workspace", "files in and out, beneath a root"),
    ("net", "fetch policy, pinned client, egress proxy"),
    ("policy · model · receipt · limits · errors · util", "plain values"),
)

#: Who takes part in a cell, from left to right.
ACTORS = ("page", "notebook/", "session/", "guest/session/", "guest/python/")
#: The walk of one Python cell: from, to, what happens, where to read it.
STEPS = (
    (0, 1, "execute_request with the cell's text", "notebook/cell_requests.py"),
    (1, 1, "first line → language, options, policy", "notebook/options/parse_cell.py"),
    (1, 1, "which session? an open one, or a new one", "notebook/sessions.py"),
    (1, 2, "Session.arun(code, limits)", "notebook/sandboxes.py"),
    (2, 2, "check the request, take the turn", "session/cell/request.py"),
    (2, 3, "run this code", "session/worker/channel.py"),
    (3, 4, "evaluate the cell", "guest/session/worker.py"),
    (4, 3, "value, displays, error", "guest/python/python_session.py"),
    (3, 2, "messages and output, read as hostile", "session/worker/messages.py"),
    (2, 2, "watch every limit and the stop sign", "jail/watch_loop.py"),
    (2, 2, "clean every display", "untrusted/sanitize.py"),
    (2, 3, "ended by itself: fork a checkpoint", "session/worker/jailed_worker.py"),
    (2, 3, "else: kill it, wake the last checkpoint", "guest/session/checkpoint_gate.py"),
    (2, 1, "ExecResult: status, output, notes", "session/cell/result.py"),
    (1, 1, "streams, displays, receipt as messages", "notebook/render.py"),
    (1, 0, "stream · display_data · execute_reply", "notebook/page/kernel_door.py"),
)

_STYLE = (
    "<style>text{font:13px sans-serif;fill:#1f2328}.path{font:11px monospace;fill:#59636e}.name{font-weight:bold}"
    "rect{fill:#f6f8fa;stroke:#8c959f}.jail{fill:#fff4e5;stroke:#bc7a00}.paper{fill:#fff;stroke:none}"
    "line,path{stroke:#57606a;fill:none}</style>"
)
_ARROW = (
    '<defs><marker id="tip" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">'
    '<polygon points="0,0 9,4 0,8" fill="#57606a"/></marker></defs>'
)


def floors() -> str:
    """The floors as a stack of boxes."""
    parts = []
    for number, (room, purpose) in enumerate(FLOORS):
        top = 14 + number * 44
        parts.append(f'<rect x="14" y="{top}" width="560" height="36" rx="4"/>')
        parts.append(_text(26, top + 15, room, "name") + _text(26, top + 30, purpose))
    jail = 14 + [room for room, _ in FLOORS].index("jail") * 44
    parts.append(f'<rect class="jail" x="650" y="{jail}" width="250" height="36" rx="4"/>')
    parts.append(_text(662, jail + 15, "guest", "name") + _text(662, jail + 30, "programs that run inside a jail"))
    parts.append(f'<line x1="574" y1="{jail + 18}" x2="650" y2="{jail + 18}" stroke-dasharray="4 3" {_TIP}/>')
    parts.append(_text(662, jail + 54, "started by path, never imported", "path"))
    return _picture(920, 20 + len(FLOORS) * 44, "The floors of the package, doors at the top, values below", parts)


def one_cell() -> str:
    """The walk of one cell as a sequence of arrows between the rooms."""
    place = (90, 340, 590, 900, 1130)
    height = 90 + len(STEPS) * 46
    left = place[3] - 78
    parts = [f'<rect class="jail" x="{left}" y="8" width="{place[-1] + 85 - left}" height="{height - 16}" rx="6"/>']
    parts.append(_text((place[3] + place[4]) // 2, 24, "inside the jail", "path", middle=True))
    for x, actor in zip(place, ACTORS, strict=True):
        parts.append(f'<line x1="{x}" y1="62" x2="{x}" y2="{height - 14}" stroke-dasharray="2 4"/>')
        parts.append(f'<rect x="{x - 62}" y="32" width="124" height="30" rx="4"/>')
        parts.append(_text(x, 52, actor, "name", middle=True))
    for number, (start, end, what, file) in enumerate(STEPS):
        y, x = 98 + number * 46, place[start]
        if start == end:
            parts.append(f'<path d="M{x} {y - 12} h20 v16 h-17" {_TIP}/>')
            parts.append(_text(x + 26, y - 6, what) + _text(x + 26, y + 8, file, "path"))
        else:
            tip = place[end] + (-2 if end > start else 2)
            middle = (place[start] + place[end]) // 2
            parts.append(f'<line x1="{x}" y1="{y}" x2="{tip}" y2="{y}" {_TIP}/>')
            parts.append(_text(middle, y - 6, what, middle=True) + _text(middle, y + 13, file, "path", middle=True))
    return _picture(place[-1] + 100, height, "The walk of one Python cell from the page into the jail and back", parts)


_TIP = 'marker-end="url(#tip)"'


def _text(x: int, y: int, words: str, kind: str = "", *, middle: bool = False) -> str:
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text x="{x}" y="{y}"{f" class={chr(34)}{kind}{chr(34)}" if kind else ""}{anchor}>{escape(words)}</text>'


def _picture(width: int, height: int, title: str, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">'
    paper = f'<rect class="paper" width="{width}" height="{height}"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", _STYLE, _ARROW, paper, *parts, "</svg>"]) + "\n"
