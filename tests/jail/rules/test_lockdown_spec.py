from __future__ import annotations

import marshal
import os
import subprocess
import sys

import pytest

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.rules.landlock import landlock_plan
from sandbox_kernel.jail.rules.lockdown_spec import LOCKDOWN_PATH, LockdownSpec, lockdown_argv


def test_a_spec_holds_only_plain_values_and_leaves_out_what_was_not_asked_for() -> None:
    plan = landlock_plan(["/usr"], ["/box"], abi=7)
    full = LockdownSpec(
        env={"A": "1"},
        rlimits={"NOFILE": 64, "CPU": (1, 2)},
        parent=7,
        subreaper=True,
        landlock=plan,
        dumpable=False,
        seccomp=(b"12345678",),
    )
    assert marshal.loads(full.to_bytes()) == {
        "env": {"A": "1"},
        "rlimits": {"NOFILE": 64, "CPU": (1, 2)},
        "parent": 7,
        "subreaper": True,
        "landlock": plan.to_dict(),
        "dumpable": False,
        "seccomp": [b"12345678"],
    }
    assert marshal.loads(LockdownSpec().to_bytes()) == {"env": {}, "rlimits": {}, "subreaper": False, "seccomp": []}


@pytest.mark.parametrize("command", [[], [""], ["a", "b\0"]])
def test_a_command_that_cannot_be_started_is_refused(command: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        lockdown_argv("python3", 3, 4, command)


def test_the_guests_program_is_there_and_named_by_path() -> None:
    assert os.path.isfile(LOCKDOWN_PATH)
    assert os.path.dirname(LOCKDOWN_PATH) in lockdown_argv("python3", 3, 4, ["true"])


@pytest.mark.skipif(sys.platform != "linux", reason="these walls are Linux's")
def test_the_command_runs_with_its_arguments_and_without_our_descriptors() -> None:
    spec_fd = os.memfd_create("spec", 0)
    os.write(spec_fd, LockdownSpec(rlimits={"NOFILE": 77}, parent=os.getpid()).to_bytes())
    os.lseek(spec_fd, 0, os.SEEK_SET)
    reader, writer = os.pipe()
    code = "import os, resource, sys; print(sys.argv[1:], resource.getrlimit(resource.RLIMIT_NOFILE))"
    argv = lockdown_argv(sys.executable, spec_fd, writer, [sys.executable, "-I", "-c", code, "-x", "", "a b"])
    done = subprocess.run(argv, pass_fds=(spec_fd, writer), capture_output=True, text=True, timeout=60)
    os.close(writer)
    os.close(spec_fd)
    with open(reader) as file:
        assert file.read() == ""
    assert done.stdout == "['-x', '', 'a b'] (77, 77)\n"
