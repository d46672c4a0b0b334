"""Folders between runs: what another user of the machine could do to them is found, wherever on the way he could."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel.util import own_folder
from sandbox_kernel.util.own_folder import NotPrivate, cache_root, make_own_folder, parent_weakness, weakness

STRANGER = 64321


@pytest.fixture
def top(tmp_path: Path) -> Path:
    top = tmp_path / "top"
    top.mkdir(mode=0o700)
    return top


def test_a_folder_is_made_for_us_alone_whatever_the_umask_is(top: Path) -> None:
    before = os.umask(0)
    try:
        make_own_folder(str(top / "a" / "b" / "c"))
    finally:
        os.umask(before)
    for folder in (top / "a", top / "a" / "b", top / "a" / "b" / "c"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert weakness(str(top / "a" / "b" / "c")) is None
    make_own_folder(str(top / "a" / "b" / "c"))


def writable_by_all(top: Path) -> None:
    (top / "a").chmod(0o777)


def writable_by_a_group(top: Path) -> None:
    os.chown(top / "a", -1, STRANGER)
    (top / "a").chmod(0o770)


def of_another(top: Path) -> None:
    os.chown(top / "a", STRANGER, STRANGER)


def through_a_link_of_another(top: Path) -> None:
    (top / "a").rename(top / "real")
    os.symlink("real", top / "a")
    os.chown(top / "a", STRANGER, STRANGER, follow_symlinks=False)


def through_a_folder_behind_a_link(top: Path) -> None:
    open_to_all = top / "open"
    open_to_all.mkdir()
    (top / "a").rename(open_to_all / "real")
    open_to_all.chmod(0o777)
    os.symlink("open/real", top / "a")


def open_itself(top: Path) -> None:
    (top / "a" / "own").chmod(0o755)


def a_link_itself(top: Path) -> None:
    (top / "a" / "own").rename(top / "a" / "real")
    os.symlink("real", top / "a" / "own")


WAYS: list[Callable[[Path], None]] = [
    writable_by_all, writable_by_a_group, of_another, through_a_link_of_another, through_a_folder_behind_a_link,
    open_itself, a_link_itself,
]  # fmt: skip
OF_ROOT = (writable_by_a_group, of_another, through_a_link_of_another)


@pytest.mark.parametrize("let_in", WAYS, ids=lambda way: way.__name__)
def test_whoever_could_exchange_a_folder_on_the_way_is_found(top: Path, let_in: Callable[[Path], None]) -> None:
    if let_in in OF_ROOT and os.geteuid() != 0:
        pytest.skip("only root can give a folder or a link away, or to a group that it is not in")
    folder = str(top / "a" / "own")
    make_own_folder(folder)
    let_in(top)
    assert weakness(folder) is not None
    with pytest.raises(NotPrivate):
        make_own_folder(folder)


def test_a_sticky_folder_of_roots_is_as_good_as_our_own(top: Path) -> None:
    (top / "a").mkdir()
    (top / "a").chmod(0o1777)
    make_own_folder(str(top / "a" / "own"))
    assert parent_weakness(str(top / "a")) is None
    (top / "a").chmod(0o777)
    assert "can be written by everybody" in str(parent_weakness(str(top / "a")))


def test_the_private_group_of_a_user_is_that_user(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (top / "a").mkdir()
    (top / "a").chmod(0o775)
    for own, expected in ((True, True), (False, False)):
        monkeypatch.setattr(own_folder, "_is_own_group", lambda _, own=own: own)
        assert (parent_weakness(str(top / "a")) is None) is expected


def test_links_in_a_circle_are_an_error_and_no_endless_walk(top: Path) -> None:
    os.symlink("b", top / "a")
    os.symlink("a", top / "b")
    with pytest.raises(OSError, match="links"):
        weakness(str(top / "a" / "x"))


@pytest.mark.parametrize("value", ["", "relative/folder", "."])
def test_a_cache_folder_that_is_not_absolute_is_not_used(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", "/a/home")
    assert cache_root() == "/a/home/.cache"
