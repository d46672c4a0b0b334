"""What a worker is given of the host: matplotlib's list of fonts, found where the user's own matplotlib keeps it."""

from __future__ import annotations

from pathlib import Path

from sandbox_kernel.session.opening.language_workers import font_lists


def test_only_lists_of_fonts_of_a_sane_size_are_taken(tmp_path: Path) -> None:
    (tmp_path / "matplotlib").mkdir()
    (tmp_path / "matplotlib" / "fontlist-v2.json").write_text("[]")
    (tmp_path / "fontlist-v390.json").write_text("{}")
    (tmp_path / "fontlist-v1.json").write_bytes(bytes((4 << 20) + 1))
    (tmp_path / "secret.json").write_text("no")
    found = font_lists("/tmp/x", {"MPLCONFIGDIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)})
    assert {(file.root, file.name, file.data) for file in found} == {
        ("/tmp/x", "fontlist-v390.json", b"{}"),
        ("/tmp/x", "fontlist-v2.json", b"[]"),
    }
    assert font_lists("/tmp/x", {"XDG_CACHE_HOME": "/no/such/folder"}) == ()
