from pathlib import Path

from benchmarks.__main__ import MARKERS, write

PRINTED = """2026-11-17 · aarch64, 2 cores, Linux 6, load 1.0

### A fresh Python program: print(1)

| | median ms | ÷ plain python3 -c |
|---|---|---|
| plain python3 -c | 17.98 | 1.00 |
| firejail 0.9.72 | 36.96 | 2.10 |
| sandbox, warm pool | 5.58 | 0.31 |
"""
OLD = "| a JavaScript cell, ms | 12.67 | node 39.69 | `languages` | 2026-11-15, aarch64, 2 cores |"
NEW = "| a fresh `print(1)`, warm, ms | 5.58 | python3 17.98, firejail 36.96 | `start` | 2026-11-17, aarch64, 2 cores |"


def test_results_are_written_anew_where_a_benchmark_ran_and_stay_where_it_did_not(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    stale = NEW.replace("5.58", "9.99")
    page.write_text(f"before\n{MARKERS[0]}\n{stale}\n{OLD}\n{MARKERS[1]}\nafter\n")
    (tmp_path / "printed").mkdir()
    (tmp_path / "printed" / "start.md").write_text(PRINTED)
    write(page, tmp_path / "printed")
    assert NEW in page.read_text() and OLD in page.read_text() and "9.99" not in page.read_text()
    assert page.read_text().startswith("before\n") and page.read_text().endswith("after\n")
