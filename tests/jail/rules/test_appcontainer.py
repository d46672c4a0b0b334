"""AppContainer plans as data: structures at the offsets of the Windows headers, quoting read back by its rules."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.errors import EnforcerUnavailable, InvalidRequest, PolicyViolation
from sandbox_kernel.jail.rules.appcontainer import (
    AppContainerPlan,
    appcontainer_plan,
    appcontainer_sid,
    appcontainer_weaknesses,
    command_line,
    environment_block,
    job_limits,
    probe_appcontainer,
)
from sandbox_kernel.limits import Limits
from sandbox_kernel.policy import Grant

WORK = r"C:\sk\work"
NAME = "sandbox-kernel.run-1"


def _plan(*grants: Grant, spawn: bool = True, single_files: tuple[str, ...] = ()) -> AppContainerPlan:
    command = ["python.exe", "-c", 'print("a b")']
    return appcontainer_plan(command, grants, name=NAME, work=WORK, spawn=spawn, single_files=single_files)


def _grant(path: str, writable: bool = False) -> Grant:
    return Grant(path, path, writable)


def test_the_sid_is_the_one_windows_derives() -> None:
    # The package of Microsoft Edge, whose SID is public knowledge.
    assert appcontainer_sid("Microsoft.MicrosoftEdge_8wekyb3d8bbwe") == (
        "S-1-15-2-3624051433-2125758914-1423191267-1740899205-1073925389-3782572162-737981194"
    )


@pytest.mark.parametrize("name", ["", "a" * 65, "a b", "a\n", "../x", "a\0", "é", ".x"])
def test_a_name_that_windows_would_not_take_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="container name"):
        appcontainer_sid(name)


def test_there_are_no_capabilities_so_there_is_no_network() -> None:
    assert _plan().capabilities == ()


def test_the_process_starts_suspended_with_its_walls_as_attributes() -> None:
    plan = _plan()
    assert plan.creation_flags == 0x4 | 0x400 | 0x80000 | 0x08000000
    assert plan.attributes == (0x20009, 0x20002, 0x2000D)
    assert plan.ui_restrictions == 0xFF


def test_only_the_work_folder_is_granted_by_default() -> None:
    plan = _plan()
    assert plan.grants == (("icacls", WORK, "/grant", f"*{plan.sid}:(OI)(CI)(M)", "/Q"),)


def test_grants_become_rights_of_this_sid_and_every_one_is_taken_back() -> None:
    plan = _plan(_grant(r"C:\data"), _grant(r"D:\out", True), _grant(r"C:\one.csv"), single_files=(r"C:\one.csv",))
    assert {row[1]: row[3] for row in plan.grants} == {
        r"C:\data": f"*{plan.sid}:(OI)(CI)(RX)",
        r"D:\out": f"*{plan.sid}:(OI)(CI)(M)",
        r"C:\one.csv": f"*{plan.sid}:(RX)",
        WORK: f"*{plan.sid}:(OI)(CI)(M)",
    }
    assert plan.revokes == tuple(("icacls", row[1], "/remove", f"*{plan.sid}", "/Q") for row in plan.grants)


def test_a_path_granted_twice_is_writable_if_either_says_so() -> None:
    for grants in ([_grant(r"C:\d"), _grant(r"C:\d", True)], [_grant(r"C:\d", True), _grant(r"C:\d")]):
        assert [row[3].endswith("(M)") for row in _plan(*grants).grants if row[1] == r"C:\d"] == [True]


@pytest.mark.parametrize(
    "path",
    [
        *("data", r"\data", "C:data", "C:/data", "/data", "", r"\\server\share", r"\\?\C:\data", r"\\.\pipe\x"),
        *("C:\\a\nb", "C:\\a\0", r"C:\a*", r"C:\a?", 'C:\\a"', r"C:\a:stream", "C:\\a|b", "C:\\\udcff"),
        *(r"C:\a\..\b", r"C:\.\a", r"C:\a.", "C:\\a ", r"C:\nul", r"C:\x\COM1.txt", "C:\\", "C:\\\\"),
    ],
)
def test_a_path_that_is_more_than_it_seems_is_refused(path: str) -> None:
    with pytest.raises(PolicyViolation):
        _plan(_grant(path))
    with pytest.raises(PolicyViolation):
        appcontainer_plan(["a.exe"], (), name=NAME, work=path)


def test_the_job_structure_has_the_layout_of_the_windows_headers() -> None:
    raw = job_limits(Limits(cpu_seconds=2.5, processes=32), 256)
    assert len(raw) == 144
    assert struct.unpack_from("<q", raw, 0) == (0,), "PerProcessUserTimeLimit"
    assert struct.unpack_from("<q", raw, 8) == (25_000_000,), "PerJobUserTimeLimit"
    assert struct.unpack_from("<I", raw, 16) == (0x2000 | 0x400 | 0x200 | 0x100 | 0x8 | 0x4,), "LimitFlags"
    assert struct.unpack_from("<QQ", raw, 24) == (0, 0), "working set"
    assert struct.unpack_from("<I", raw, 40) == (32,), "ActiveProcessLimit"
    assert struct.unpack_from("<QII", raw, 48) == (0, 0, 0), "affinity, priority, scheduling"
    assert raw[64:112] == bytes(48), "IO_COUNTERS"
    assert struct.unpack_from("<QQQQ", raw, 112) == (256 << 20, 256 << 20, 0, 0), "process and job memory, peaks"


@settings(deadline=None)
@given(cpu=st.none() | st.floats(0.001, 1e6), processes=st.integers(1, 32768), memory=st.integers(1, 1 << 20))
def test_nothing_breaks_away_and_everything_dies_with_the_job(cpu: float | None, processes: int, memory: int) -> None:
    flags = struct.unpack_from("<I", job_limits(Limits(cpu_seconds=cpu, processes=processes), memory), 16)[0]
    assert flags & (0x800 | 0x1000) == 0, "BREAKAWAY_OK, SILENT_BREAKAWAY_OK"
    assert flags & 0x2000, "KILL_ON_JOB_CLOSE"
    assert bool(flags & 0x4) == (cpu is not None)


def test_a_tiny_time_limit_is_not_no_limit() -> None:
    assert struct.unpack_from("<q", job_limits(Limits(cpu_seconds=1e-9), 1), 8) == (1,)


def test_without_spawn_the_job_holds_one_process_and_children_are_forbidden() -> None:
    plan = _plan(spawn=False)
    assert struct.unpack_from("<I", plan.job_limits, 40) == (1,)
    assert plan.attributes[-1] == 0x2000E


def _read_back(text: str) -> list[str]:
    """Split as the C runtime does: 2n backslashes and a quote are n and a switch, 2n+1 are n and the quote itself."""
    words: list[str] = []
    word, quoted, begun, at = "", False, False, 0
    while at < len(text):
        slashes = len(text[at:]) - len(text[at:].lstrip("\\"))
        at += slashes
        if at < len(text) and text[at] == '"':
            word += "\\" * (slashes // 2)
            if slashes % 2:
                word += '"'
            else:
                quoted = not quoted
            begun, at = True, at + 1
            continue
        word += "\\" * slashes
        begun = begun or bool(slashes)
        if at == len(text):
            break
        if text[at] in " \t" and not quoted:
            if begun:
                words.append(word)
            word, begun = "", False
        else:
            word, begun = word + text[at], True
        at += 1
    return [*words, word] if begun else words


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from('ab "\\\t&|%^é'), max_size=12), max_size=6))
def test_every_argument_arrives_as_it_was_written(arguments: list[str]) -> None:
    assert _read_back(command_line(["program.exe", *arguments])) == ["program.exe", *arguments]


@pytest.mark.parametrize("program", ["x.bat", "X.CMD", "x.bat. ", 'a"b.exe'])
def test_batch_files_and_quotes_in_the_program_are_refused(program: str) -> None:
    with pytest.raises(InvalidRequest, match=r"name an \.exe file"):
        command_line([program, "a"])


@pytest.mark.parametrize("command", [[], [""], ["a.exe", "b\0"], ["a.exe", "x" * 32767]])
def test_a_command_that_windows_cannot_start_is_refused(command: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        command_line(command)


def test_the_environment_holds_its_own_few_names_sorted_and_nothing_of_the_host() -> None:
    text = environment_block(WORK, {"zeta": "1", "Alpha": "é=2"}).decode("utf-16-le")
    assert text.endswith("\0\0")
    entries = text[:-2].split("\0")
    assert [entry.partition("=")[0] for entry in entries] == [
        *("Alpha", "LOCALAPPDATA", "PATH", "SystemRoot", "TEMP", "TMP", "USERPROFILE", "zeta"),
    ]
    assert "Alpha=é=2" in entries
    assert f"TEMP={WORK}" in entries


def test_a_given_name_replaces_our_own_in_any_case() -> None:
    entries = environment_block(WORK, {"path": r"C:\py"}).decode("utf-16-le").split("\0")
    assert [entry for entry in entries if entry.upper().startswith("PATH=")] == [r"path=C:\py"]


@pytest.mark.parametrize("env", [{"a": "1", "A": "2"}, {"a=b": "1"}, {"": "1"}, {"a": "x\0y"}])
def test_an_environment_that_cannot_be_passed_is_refused(env: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest):
        environment_block(WORK, env)


def test_it_says_what_it_would_not_hold() -> None:
    assert any("all application packages" in text for text in appcontainer_weaknesses())


@pytest.mark.parametrize(
    ("system", "reason"),
    [("Linux", "part of Windows and this is Linux; use bubblewrap"), ("Windows", "not implemented.*WSL 2")],
)
def test_the_probe_never_succeeds(monkeypatch: pytest.MonkeyPatch, system: str, reason: str) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    with pytest.raises(EnforcerUnavailable, match=reason) as caught:
        probe_appcontainer()
    assert caught.value.enforcer == "appcontainer"
