"""What do frames cost in JupyterLab? A Plotly cell until it is drawn, a slider's way to Python and back, cells without.

    python -m benchmarks.bench_frames [--rounds 5]

One JupyterLab in headless Chromium, the same cells in ipykernel and in *Sandbox*, in turns. Times are taken by the
documents themselves: from the command that runs the cell until a picture with the new bars has been made, and from the
key until the text that a callback in Python has set is there. Drawings, and the first key of each round, begin when the
page has come to rest. The other keys follow as if the arrow was held down: work that is left over from the key before
delays them. The first drawing sends the library; the page shows the median of those that follow.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import timeit
from pathlib import Path
from typing import Any

from benchmarks.markdown_section import table
from benchmarks.measure import machine, p95
from sandbox_kernel.untrusted.frames.frame_output import sanitize_display
from sandbox_kernel.untrusted.sanitize import sanitize_bundle

KERNELS = {"ipykernel": "python3", "Sandbox": "sandbox"}
PLOT = "import plotly.graph_objects as go\nfig = go.Figure(go.Bar(x=['a', 'b'], y=[3, 5]))"
SLIDER = """import ipywidgets
slider, shown = ipywidgets.IntSlider(0, max=1000), ipywidgets.Label("seen 0")
slider.observe(lambda change: setattr(shown, "value", f"seen {change.new}"), "value")
ipywidgets.VBox([slider, shown])"""
#: In each document: notes when the browser has made a picture with new bars. A frame out of sight makes no pictures.
NOTE = """(() => {
  const seen = new WeakSet();
  window.drawnAt = [];
  const note = () => setTimeout(() => {
    if (document.querySelector('.bars path')) window.drawnAt.push(performance.timeOrigin + performance.now());
  });
  new MutationObserver(() => {
    const fresh = [...document.querySelectorAll('.bars path')].filter((bar) => !seen.has(bar));
    fresh.forEach((bar) => seen.add(bar));
    if (fresh.length) requestAnimationFrame(note);
  }).observe(document, {childList: true, subtree: true});
})()"""
#: Runs the active cell; returns when that was.
DRAW = """() => {
  const began = performance.timeOrigin + performance.now();
  void window.jupyterapp.commands.execute('notebook:run-cell');
  return began;
}"""
REST_MS = 1500
LOOK_MS = 200
#: Keys of one round, and the time between two of them.
KEYS, NEXT_MS = 9, 100
#: Presses a key on the slider; resolves with the milliseconds until Python's answer is there.
PRESS = """async () => {
  const shown = [...document.querySelectorAll('.widget-label')].find((node) => /^seen/.test(node.textContent));
  const before = shown.textContent, began = performance.now();
  const handle = document.querySelector('.noUi-handle');
  handle.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', keyCode: 39, bubbles: true}));
  while (shown.textContent === before) {
    if (performance.now() - began > 20000) throw new Error('no answer');
    await new Promise((use) => {
      const watch = (_, observer) => { observer.disconnect(); use(); };
      new MutationObserver(watch).observe(shown, {childList: true, subtree: true, characterData: true});
    });
  }
  return performance.now() - began;
}"""


def frame_with(page: Any, selector: str) -> Any:
    """Return the document, page or frame, that shows this; waits for it."""
    for _ in range(6000):
        for frame in page.frames:
            try:
                if frame.query_selector(selector):
                    return frame
            except Exception:  # a frame that is just being replaced
                continue
        page.wait_for_timeout(10)
    raise TimeoutError(f"nothing shows {selector}")


def drawn_after(page: Any, began: float) -> float:
    """Return the milliseconds until the first picture with new bars, in the page or in a frame of it; waits for it."""
    for _ in range(300):
        page.wait_for_timeout(LOOK_MS)
        for frame in page.frames:
            try:
                times = frame.evaluate("() => window.drawnAt ?? []")
            except Exception:  # a frame that is just being replaced
                continue
            if later := [time - began for time in times if time > began]:
                return float(min(later))
    raise TimeoutError("no bars were drawn")


def keys(page: Any) -> list[float]:
    """Press the keys of one round on the slider; return the milliseconds until the answer to each is there."""
    frame = frame_with(page, ".noUi-handle")
    found = []
    for _ in range(KEYS):
        found.append(float(frame.evaluate(PRESS)))
        page.wait_for_timeout(NEXT_MS)
    return found


def measured(rounds: int) -> tuple[dict[str, list[float]], dict[str, list[list[float]]]]:
    """Return the milliseconds of drawings and of round trips (a list for each round), by kernel."""
    from playwright.sync_api import sync_playwright

    from tests.browser.conftest import FLAGS
    from tests.browser.lab_page import LabPage, code_cell, notebook_of
    from tests.browser.lab_server import running_lab

    drawn: dict[str, list[float]] = {name: [] for name in KERNELS}
    trips: dict[str, list[list[float]]] = {name: [] for name in KERNELS}
    home = Path(tempfile.mkdtemp())
    found = shutil.which("chromium") or shutil.which("google-chrome")
    try:
        with sync_playwright() as playwright, running_lab(home) as server:
            browser = playwright.chromium.launch(executable_path=found, args=[*FLAGS])
            labs = {}
            for name, kernel in KERNELS.items():
                lab = LabPage(server, browser.new_page(viewport={"width": 1280, "height": 1000}), home)
                lab.page.set_default_timeout(120_000)
                lab.page.add_init_script(NOTE)
                lab.start()
                cells = [code_cell(SLIDER), code_cell(PLOT), code_cell("fig")]
                server.write_notebook(f"{kernel}.ipynb", notebook_of(*cells, kernel=kernel))
                lab.open(f"{kernel}.ipynb")
                lab.run_all()
                lab.wait_for_idle()
                frame_with(lab.page, ".bars path")
                frame_with(lab.page, ".noUi-handle").evaluate(PRESS)
                labs[name] = lab
            for _ in range(rounds):
                for name, lab in labs.items():
                    lab.page.bring_to_front()
                    lab.select_cell(2)
                    lab.page.wait_for_timeout(REST_MS)
                    drawn[name].append(drawn_after(lab.page, lab.page.evaluate(DRAW)))
                    lab.wait_for_idle()
                    lab.page.wait_for_timeout(REST_MS)
                    trips[name].append(keys(lab.page))
            for lab in labs.values():
                lab.end_kernels()
            browser.close()
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return drawn, trips


def rows(title: str, times: dict[str, list[float]]) -> list[list[str]]:
    """Return the rows of one measurement."""
    whole = statistics.median(times["ipykernel"])
    return [
        [
            title,
            name,
            f"{statistics.median(values):.0f}",
            f"{p95(values):.0f}",
            f"{statistics.median(values) / whole:.2f}",
        ]
        for name, values in times.items()
    ]


def checking() -> list[list[str]]:
    """Return what looking for a frame adds to a display that needs none, in microseconds."""
    table_html = "<table>" + "<tr><td>1</td><td>2</td></tr>" * 60 + "</table>"
    found = []
    for name, data in {"a number": {"text/plain": "2"}, "a table of 60 rows": {"text/html": table_html}}.items():
        one = [
            min(timeit.repeat(lambda d=data, f=f: f(d, {}), number=20, repeat=9)) / 20e-6
            for f in (sanitize_bundle, sanitize_display)
        ]
        found.append([name, f"{one[0]:.0f}", f"{one[1]:.0f}", f"{one[1] - one[0]:.0f}"])
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    drawn, trips = measured(rounds)
    print(f"{machine()}; {rounds} rounds in turns.\n")
    first = {name: [taken[0] for taken in times] for name, times in trips.items()}
    later = {name: [one for taken in times for one in taken[1:]] for name, times in trips.items()}
    lines = rows("a Plotly cell, run until drawn", drawn)
    lines += rows("a slider's key after a pause, until Python's answer is drawn", first)
    lines += rows(f"the keys after it, {NEXT_MS} ms apart", later)
    print(table(["", "kernel", "median ms", "p95 ms", "÷ ipykernel"], lines))
    print("\nChecking a display that needs no frame, in microseconds:\n")
    print(table(["", "without looking for frames", "with", "added"], checking()))
    json.dump({"drawn": drawn, "trips": trips}, sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
