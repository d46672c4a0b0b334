from pathlib import Path

from benchmarks.__main__ import keep
from benchmarks.page_plots import PLOTS, draw, find_table, with_pictures

START = """### A fresh Python program: print(1)

| | median ms | ÷ plain python3 -c |
|---|---|---|
| plain python3 -c | 17.98 | 1.00 |
| sandbox, warm pool | 5.58 | 0.31 |
| broken | – | – |

Not the same walls.

### Output

fast
"""


def test_a_table_is_found_below_its_heading() -> None:
    table = find_table(START, "A fresh Python program")
    assert table is not None
    assert table.column("median ms") == {"plain python3 -c": 17.98, "sandbox, warm pool": 5.58}
    assert find_table(START, "Output") is None
    assert find_table(START, "Nothing of the kind") is None


def test_a_picture_shows_the_numbers_of_its_table() -> None:
    (chart,) = draw("start", START).values()
    assert "0.31" in chart
    assert "sandbox, warm pool" in chart
    assert draw("kernel", START) == {}


def test_linking_a_picture_twice_changes_nothing() -> None:
    once = with_pictures("start", START, "plots")
    assert once.count("(plots/start.svg)\n\n| | median ms") == 1
    assert with_pictures("start", once, "plots") == once


def test_what_a_benchmark_printed_is_kept_with_its_pictures(tmp_path: Path) -> None:
    keep("start", START, tmp_path)
    assert "](plots/start.svg)" in (tmp_path / "start.md").read_text()
    assert (tmp_path / "plots" / "start.svg").read_text().startswith("<svg ")


def test_every_plot_has_a_file_of_its_own() -> None:
    assert len({plot.file for plot in PLOTS}) == len(PLOTS)
