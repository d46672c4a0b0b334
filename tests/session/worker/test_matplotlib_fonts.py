"""matplotlib's list of fonts, found where the user's own matplotlib keeps it."""

from __future__ import annotations

from pathlib import Path

from sandbox_kernel.session.worker.matplotlib_fonts import cache_folders, font_lists


def test_it_is_looked_for_where_matplotlib_keeps_it() -> None:
    assert cache_folders({}, "/home/u") == ["/home/u/.cache/matplotlib"]
    assert cache_folders({"XDG_CACHE_HOME": "/c", "MPLCONFIGDIR": "/m"}, "/h") == ["/m", "/c/matplotlib"]


def test_only_lists_of_fonts_of_a_sane_size_are_taken(tmp_path: Path) -> None:
    (tmp_path / "fontlist-v390.json").write_text("{}")
    (tmp_path / "fontlist-v1.json").write_bytes(bytes((4 << 20) + 1))
    (tmp_path / "secret.json").write_text("no")
    found = font_lists("/tmp/x", [str(tmp_path), "/no/such/folder"])
    assert [(file.root, file.name, file.data) for file in found] == [("/tmp/x", "fontlist-v390.json", b"{}")]
