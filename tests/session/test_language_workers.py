"""What a worker is given of the host: matplotlib's list of fonts, and the addon that freezes Node.js."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.session import language_workers
from sandbox_kernel.session.language_workers import font_lists, freeze_addon


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


@pytest.fixture
def fresh() -> Iterator[None]:
    freeze_addon.cache_clear()
    yield
    freeze_addon.cache_clear()


def test_the_addon_is_a_shared_object(fresh: None) -> None:
    program, problem = freeze_addon()
    assert problem == ""
    assert program.startswith(b"\x7fELF")
    assert b"napi_register_module_v1" in program


def test_without_a_compiler_there_is_a_reason(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_workers, "find_compiler", lambda: None)
    assert freeze_addon() == (b"", language_workers.MISSING)


@pytest.mark.parametrize("compiler", [("/bin/false",), ("/no/such/compiler",)])
def test_a_compiler_that_fails_is_a_reason(
    fresh: None, monkeypatch: pytest.MonkeyPatch, compiler: tuple[str, ...]
) -> None:
    monkeypatch.setattr(language_workers, "find_compiler", lambda: compiler)
    program, problem = freeze_addon()
    assert program == b""
    assert problem.startswith("the addon for JavaScript checkpoints could not be compiled")
