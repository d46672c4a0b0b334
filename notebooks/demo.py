"""Runs a notebook through the Sandbox kernel and prints each cell and what it gave: ``make demo``.

python notebooks/demo.py [NOTEBOOK]
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

from jupyter_client.manager import start_new_kernel

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PLAIN = ("text/plain", "text/markdown")


def told(kind: str, content: dict[str, object]) -> str:
    """What one message shows, as text."""
    if kind == "stream":
        return str(content["text"])
    if kind == "error":
        return f"{content['ename']}: {content['evalue']}"
    data = content.get("data")
    if isinstance(data, dict):
        pictures = [mime for mime in data if mime.startswith("image/")]
        shown = next((str(data[mime]) for mime in _PLAIN if mime in data), "")
        return f"({', '.join(pictures)}) {shown}" if pictures else shown
    return ""


def main() -> int:
    """Run the notebook; a cell that fails without being marked ``raises-exception`` fails the demonstration."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "tour.ipynb"
    notebook = json.loads(path.read_text())
    manager, client = start_new_kernel(kernel_name="sandbox", startup_timeout=120, cwd=str(path.parent))
    failed = 0
    try:
        for cell in notebook["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                print("\n" + source.strip())
                continue
            print("\n" + "\n".join(f"    {line}" for line in source.splitlines()))
            began = time.perf_counter()
            messages: list[tuple[str, dict[str, object]]] = []
            reply = client.execute_interactive(
                source,
                timeout=300,
                allow_stdin=False,
                output_hook=lambda message, into=messages: into.append((message["msg_type"], message["content"])),
            )
            took = (time.perf_counter() - began) * 1e3
            text = "".join(
                f"{told(kind, content).rstrip()}\n"
                for kind, content in messages
                if kind in ("stream", "error", "display_data", "execute_result")
            )
            for line in _COLOURS.sub("", text).splitlines()[:25]:
                print(f"  > {line[:160]}")
            expected = "raises-exception" in cell.get("metadata", {}).get("tags", [])
            wrong = reply["content"]["status"] != "ok" and not expected
            failed += wrong
            print(f"  = {'FAILED' if wrong else 'as meant'}, {took:.0f} ms")
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    print(f"\n{failed} cells failed" if failed else "\nEvery cell did what it was meant to do.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
