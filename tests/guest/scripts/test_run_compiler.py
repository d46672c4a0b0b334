"""guest/scripts/run_compiler.py: what a compiler says is passed on, and kept when it succeeds."""

import os
import subprocess
import sys
from pathlib import Path

import sandbox_kernel
from sandbox_kernel.guest.scripts.run_compiler import MAX_MESSAGES, lay_over

GUEST = Path(sandbox_kernel.__file__).parent / "guest"
#: As a step of the gate does it.
START = [
    "-c",
    f"import os, sys; sys.path[0] = {str(GUEST / 'scripts')!r}; import run_compiler; os._exit(run_compiler.main(sys.argv))",
]


def compiled(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *START, str(tmp_path / "messages"), "/bin/sh", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_both_streams_go_to_stderr_and_into_the_file_but_not_of_a_failure_or_when_it_says_too_much(
    tmp_path: Path,
) -> None:
    done = compiled(tmp_path, "echo no >&2; exit 3")
    assert (done.returncode, done.stderr) == (3, "no\n")
    assert not (tmp_path / "messages").exists()
    done = compiled(tmp_path, f"head -c {MAX_MESSAGES + 1} /dev/zero | tr '\\0' x")
    assert (done.returncode, len(done.stderr)) == (0, MAX_MESSAGES + 1)
    assert not (tmp_path / "messages").exists()
    done = compiled(tmp_path, "echo one; echo two >&2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "one\ntwo\n")
    assert (tmp_path / "messages").read_text() == "one\ntwo\n"


def test_a_signal_that_ended_the_compiler_ends_this_too(tmp_path: Path) -> None:
    assert compiled(tmp_path, "kill -SEGV $$").returncode == -11
    assert compiled(tmp_path, "kill -KILL $$").returncode == -9


def test_a_compiler_that_is_not_there_is_127(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, *START, str(tmp_path / "m"), "/nowhere/cc"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (127, "/nowhere/cc: No such file or directory\n")


def test_a_cache_is_laid_over_what_was_built_before(tmp_path: Path) -> None:
    base, top = tmp_path / "base", tmp_path / "top"
    for name in ("h", "o/built", "b"):
        (base / name).mkdir(parents=True)
    (base / "h" / "manifest").write_text("m")
    (base / "o" / "built" / "lib.a").write_text("archive")
    lay_over(str(base), str(top))
    assert (top / "o" / "built" / "lib.a").read_text() == "archive"
    assert os.path.islink(top / "o" / "built" / "lib.a")
    (top / "h" / "manifest").write_text("changed")
    (top / "o" / "new").mkdir()
    (top / "tmp" / "new.a").write_text("newer")
    os.rename(top / "tmp" / "new.a", top / "o" / "built" / "lib.a")
    assert (top / "o" / "built" / "lib.a").read_text() == "newer"
    assert (base / "o" / "built" / "lib.a").read_text() == "archive", "built again: the link is replaced, not its file"
    assert (base / "h" / "manifest").read_text() == "m"
    assert not (base / "o" / "new").exists()


def test_a_cache_in_a_folder_with_colons_and_spaces_is_found(tmp_path: Path) -> None:
    base, top = tmp_path / "a:b c\nd", tmp_path / "top"
    for name in ("h", "o"):
        (base / name).mkdir(parents=True)
    (base / "h" / "manifest").write_text("m")
    env = {**os.environ, "SANDBOX_PREPARED": str(base), "ZIG_GLOBAL_CACHE_DIR": str(top)}
    command = [
        sys.executable,
        *START,
        str(tmp_path / "messages"),
        "/bin/sh",
        "-c",
        "echo ${SANDBOX_PREPARED-}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    assert (done.returncode, done.stderr) == (0, "\n")
    assert (top / "h" / "manifest").read_text() == "m"
