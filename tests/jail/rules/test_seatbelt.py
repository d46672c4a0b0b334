"""Seatbelt profiles, read with an s-expression reader of our own and judged as macOS would: the last rule decides."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.errors import EnforcerUnavailable, InvalidRequest, PolicyViolation
from sandbox_kernel.jail.rules import seatbelt
from sandbox_kernel.jail.rules.seatbelt import probe_seatbelt, seatbelt_argv, seatbelt_profile, seatbelt_weaknesses
from sandbox_kernel.policy import Grant

WORK, TMP = "/private/var/sk/work", "/private/var/sk/tmp"


class _Text(str):
    """A quoted string, told apart from a symbol."""


def _parse(text: str) -> list[object]:
    """Read s-expressions; unbalanced parentheses and open strings are errors."""
    stack: list[list[object]] = [[]]
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "(":
            stack.append([])
        elif character == ")":
            done = stack.pop()
            stack[-1].append(done)
        elif character == '"':
            value = ""
            while text[at] != '"':
                at += text[at] == "\\"
                value += text[at]
                at += 1
            at += 1
            stack[-1].append(_Text(value))
        elif not character.isspace():
            start = at - 1
            while at < len(text) and text[at] not in '() \n\t"':
                at += 1
            stack[-1].append(text[start:at])
    assert len(stack) == 1, "unbalanced"
    return stack[0]


def _profile(*grants: Grant, network_port: int | None = None, spawn: bool = True) -> str:
    return seatbelt_profile(grants, work=WORK, tmp=TMP, network_port=network_port, spawn=spawn)


def _decides(profile: str, operation: str, path: str) -> bool:
    """Whether an operation on a path is allowed: the last rule that fits."""
    answer = False
    for rule in _parse(profile):
        assert isinstance(rule, list)
        if rule[0] in ("allow", "deny") and rule[1] in (operation, "default"):
            filters = rule[2:]
            if not filters or any(_fits(one, path) for one in filters):
                answer = rule[0] == "allow"
    return answer


def _fits(condition: object, path: str) -> bool:
    assert isinstance(condition, list)
    kind, value = condition[0], condition[1]
    if kind == "subpath":
        return path == value or path.startswith(f"{value}/")
    return kind == "literal" and path == value


def _heads(profile: str) -> list[tuple[object, object]]:
    return [(rule[0], rule[1]) for rule in _parse(profile) if isinstance(rule, list)]


def ro(path: str) -> Grant:
    return Grant(path, path, False)


def rw(path: str) -> Grant:
    return Grant(path, path, True)


def test_it_begins_with_deny_default_and_never_allows_default() -> None:
    heads = _heads(_profile())
    assert heads[:2] == [("version", "1"), ("deny", "default")]
    assert ("allow", "default") not in heads


def test_it_never_grants_blanket_reads_or_writes() -> None:
    for rule in _parse(_profile(ro("/Users/me/data"), rw("/Users/me/out"), network_port=3128)):
        assert isinstance(rule, list)
        if rule[0] == "allow" and str(rule[1]).startswith(("file-", "sysctl", "mach", "network", "ipc-posix-shm")):
            assert len(rule) > 2, rule
            assert ["subpath", "/"] not in rule


@pytest.mark.parametrize(
    "path",
    [
        "/Users/me/.ssh/id_ed25519",
        "/Users/me/.aws/credentials",
        "/Users/me/Library/Keychains/login.keychain-db",
        "/Library/Keychains/System.keychain",
        "/private/etc/master.passwd",
        "/private/etc/sudoers",
        "/private/var/db/dslocal/nodes/Default/users/me.plist",
        "/opt/homebrew/var/postgres/base",
        "/usr/local/etc/secrets.conf",
        "/Volumes/Backup/x",
        "/private/tmp/other",
    ],
)
def test_secrets_of_the_host_are_neither_readable_nor_writable(path: str) -> None:
    profile = _profile(ro("/Users/me/data"))
    assert not _decides(profile, "file-read*", path)
    assert not _decides(profile, "file-write*", path)


@pytest.mark.parametrize(
    "path", ["/bin/sh", "/usr/lib/dyld", "/System/Library/x", "/opt/homebrew/bin/node", "/dev/urandom"]
)
def test_what_programs_are_made_of_is_readable_and_not_writable(path: str) -> None:
    assert _decides(_profile(), "file-read*", path)
    assert not _decides(_profile(), "file-write*", path)


def test_the_work_and_temporary_folders_are_writable_and_their_parents_are_not() -> None:
    profile = _profile()
    for path in (f"{WORK}/a", f"{TMP}/b", WORK):
        assert _decides(profile, "file-write*", path)
    for path in ("/private/var/sk", "/private/var/sk/workshop", "/private/var", "/Users/me/x"):
        assert not _decides(profile, "file-write*", path)
    assert _decides(profile, "file-read-metadata", "/private/var/sk"), "realpath asks about parents"
    assert not _decides(profile, "file-read*", "/private/var/sk"), "but they are not listed"


def test_a_read_grant_reads_and_a_write_grant_writes() -> None:
    profile = _profile(ro("/data/in"), rw("/data/out"))
    assert _decides(profile, "file-read*", "/data/in/x")
    assert not _decides(profile, "file-write*", "/data/in/x")
    assert _decides(profile, "file-read*", "/data/out/x")
    assert _decides(profile, "file-write*", "/data/out/x")
    assert not _decides(profile, "file-read*", "/data/other")


@pytest.mark.parametrize("turn", [1, -1])
def test_of_nested_grants_the_innermost_decides_in_any_order(turn: int) -> None:
    profile = _profile(*[rw("/data"), ro("/data/kept"), rw("/data/kept/scratch")][::turn])
    assert _decides(profile, "file-write*", "/data/x")
    assert not _decides(profile, "file-write*", "/data/kept/x")
    assert _decides(profile, "file-write*", "/data/kept/scratch/x")


def test_the_work_folder_stays_writable_inside_a_read_only_grant() -> None:
    profile = _profile(ro("/private/var/sk"), ro(WORK))
    assert not _decides(profile, "file-write*", "/private/var/sk/x")
    assert _decides(profile, "file-write*", f"{WORK}/x")


def test_a_path_granted_twice_is_writable_if_either_says_so() -> None:
    for grants in ([ro("/data"), rw("/data")], [rw("/data"), ro("/data")]):
        assert _decides(_profile(*grants), "file-write*", "/data/x")


def test_paths_are_those_the_kernel_sees() -> None:
    profile = seatbelt_profile([ro("/etc/ssh"), ro("/tmpfiles")], work="/tmp//w/", tmp="/var/folders/t")
    for path in ("/private/tmp/w/x", "/private/var/folders/t/x"):
        assert _decides(profile, "file-write*", path)
    assert _decides(profile, "file-read*", "/private/etc/ssh")
    assert _decides(profile, "file-read*", "/tmpfiles")
    assert '"/tmp/w"' not in profile


def test_a_linked_path_may_be_followed_but_gives_nothing_else() -> None:
    profile = _profile(Grant("/data/real", "/Users/me/link", False))
    assert _decides(profile, "file-read*", "/data/real/x")
    assert _decides(profile, "file-read-metadata", "/Users/me/link")
    assert not _decides(profile, "file-read*", "/Users/me/link")


def test_without_a_port_there_is_no_network_at_all() -> None:
    heads = _heads(_profile())
    assert ("deny", "network*") in heads
    assert [head for head in heads if head[0] == "allow" and str(head[1]).startswith("network")] == []


def test_with_a_port_the_proxy_is_the_only_way_out_and_comes_after_the_denial() -> None:
    rules = _parse(_profile(network_port=3128))
    assert rules[-2:] == [
        ["deny", "network*"],
        ["allow", "network-outbound", ["remote", "ip", "localhost:3128"]],
    ]
    assert _heads(_profile(network_port=3128)).count(("allow", "network-outbound")) == 1


@pytest.mark.parametrize("port", [0, -1, 65536, True, "3128", '1")) (allow default) (("'])
def test_a_port_that_is_none_is_refused(port: object) -> None:
    with pytest.raises(PolicyViolation, match="1 to 65535"):
        _profile(network_port=port)  # type: ignore[arg-type]


def test_forking_is_allowed_only_with_spawn_and_exec_always() -> None:
    assert ("allow", "process-fork") in _heads(_profile(spawn=True))
    assert ("allow", "process-fork") not in _heads(_profile(spawn=False))
    assert ("allow", "process-exec") in _heads(_profile(spawn=False))


HOSTILE = ['/w") (allow default) ("', "/w\\", '/w\\") (allow default) (version "', "/w (allow default)", "/w;x", '/#"']


@pytest.mark.parametrize("path", HOSTILE)
def test_a_hostile_name_cannot_add_a_rule(path: str) -> None:
    expected = _heads(_profile(rw("/w")))
    profile = _profile(rw(path))
    assert _heads(profile) == expected
    assert _decides(profile, "file-write*", path + "/x")
    assert not _decides(profile, "file-write*", "/etc/passwd")


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1).filter(lambda t: t.strip("/.")))
def test_no_printable_name_changes_the_shape_of_the_profile(name: str) -> None:
    path = "/" + "/".join(part for part in name.split("/") if part not in ("", ".", ".."))
    if path in ("/", "/etc", "/tmp", "/var"):
        return
    profile = _profile(rw("/a" + path))
    assert _heads(profile) == _heads(_profile(rw("/a")))
    assert _decides(profile, "file-write*", "/a" + path)


@pytest.mark.parametrize("where", ["source", "target", "work", "tmp"])
@pytest.mark.parametrize("path", ["/a\nb", "/a\0", "/a\x1b[0m", "/a\x7f", "/a\x85b", "/a\u2028b", "/a\udcff", "/a\tb"])
def test_control_characters_and_names_that_are_no_utf8_are_refused_everywhere(where: str, path: str) -> None:
    grant = Grant(path if where == "source" else "/s", path if where == "target" else "/t", False)
    with pytest.raises(PolicyViolation, match="control characters"):
        seatbelt_profile([grant], work=path if where == "work" else WORK, tmp=path if where == "tmp" else TMP)


@pytest.mark.parametrize("path", ["data", "", "./x", "/a/../etc", "/", "//", "/."])
def test_relative_and_climbing_paths_and_the_whole_disk_are_refused(path: str) -> None:
    with pytest.raises(PolicyViolation):
        _profile(ro(path))


def test_the_same_question_gives_the_same_text() -> None:
    assert _profile(ro("/b"), rw("/a")) == _profile(rw("/a"), ro("/b"))


def test_the_command_line_puts_the_program_after_the_profile() -> None:
    argv = seatbelt_argv(["python3", "-c", "--", "-p"], [ro("/data")], work=WORK, tmp=TMP, network_port=1, spawn=False)
    profile = _profile(ro("/data"), network_port=1, spawn=False)
    assert argv == ["/usr/bin/sandbox-exec", "-p", profile, "--", "python3", "-c", "--", "-p"]


@pytest.mark.parametrize("command", [[], [""], ["a\0b"]])
def test_a_command_that_cannot_be_started_is_refused(command: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        seatbelt_argv(command, (), work=WORK, tmp=TMP)


def test_it_says_what_it_does_not_hold() -> None:
    assert any("memory" in text for text in seatbelt_weaknesses())
    assert any("best effort" in text for text in seatbelt_weaknesses())


def _answers(monkeypatch: pytest.MonkeyPatch, inside: int, outside: int) -> None:
    """A Mac whose sandbox-exec ends reads inside and outside with these exit codes."""

    def run(argv: Sequence[str], **_: object) -> subprocess.CompletedProcess[str]:
        code = outside if "/outside/" in argv[-1] else inside
        return subprocess.CompletedProcess(argv, code, "", "sandbox-exec: no such luck" if code else "")

    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr(seatbelt.subprocess, "run", run)


def test_the_probe_fails_elsewhere_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Linux")
    with pytest.raises(EnforcerUnavailable, match="part of macOS and this is Linux; use bubblewrap") as caught:
        probe_seatbelt()
    assert caught.value.enforcer == "seatbelt"


def test_the_probe_fails_when_programs_do_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, inside=71, outside=71)
    with pytest.raises(EnforcerUnavailable, match="no such luck"):
        probe_seatbelt()


def test_the_probe_fails_when_the_wall_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, inside=0, outside=0)
    with pytest.raises(EnforcerUnavailable, match="could be read"):
        probe_seatbelt()


def test_the_probe_is_content_when_programs_run_and_the_wall_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, inside=0, outside=1)
    probe_seatbelt()


def test_the_probe_fails_when_the_tool_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, inside=0, outside=1)

    def missing(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(seatbelt.subprocess, "run", missing)
    with pytest.raises(EnforcerUnavailable, match="does not run"):
        probe_seatbelt()
