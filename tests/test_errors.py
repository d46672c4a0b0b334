"""Every error has its own stable code, says what was asked, and survives a trip to another process."""

import copy
import pickle
import subprocess
import sys

import pytest

import sandbox_kernel
from sandbox_kernel import errors
from sandbox_kernel.errors import (
    BackendUnavailable,
    CheckpointGone,
    CommandNotFound,
    Conflict,
    EnforcerFailed,
    EnforcerUnavailable,
    ExecutionFailed,
    FetchError,
    InvalidRequest,
    MemoryExceeded,
    NetworkingDisabled,
    NotAsShown,
    PathTraversal,
    PolicyViolation,
    SandboxDestroyed,
    SandboxError,
    SandboxTimeout,
    SessionError,
)
from sandbox_kernel.model import ExecResult, Status

RESULT = ExecResult(stdout="so far", status=Status.TIMEOUT, timeout=2.5)

#: One of each kind, with its code and the words that its message must hold.
CASES: tuple[tuple[SandboxError, str, str], ...] = (
    (SandboxError("something"), "code.sandbox_error", "something"),
    (SandboxTimeout(2.5, RESULT), "code.sandbox_timeout", "execution timed out after 2.5s"),
    (MemoryExceeded(64, RESULT), "code.sandbox_memory", "memory limit exceeded: 64 MB"),
    (ExecutionFailed("execution failed: exit code 3", RESULT), "code.sandbox_execution", "exit code 3"),
    (InvalidRequest("code is empty"), "code.sandbox_invalid_request", "code is empty"),
    (BackendUnavailable("no rustc"), "code.sandbox_unavailable", "no rustc"),
    (
        EnforcerFailed("bubblewrap", "no mount"),
        "code.sandbox_enforcer_failed",
        "enforcer 'bubblewrap' failed: no mount",
    ),
    (
        EnforcerUnavailable("landlock", "old kernel"),
        "code.sandbox_enforcer_unavailable",
        "enforcer 'landlock' unavailable: old kernel",
    ),
    (PolicyViolation("no such path"), "code.sandbox_policy_violation", "no such path"),
    (PathTraversal("../x"), "code.sandbox_path_traversal", "../x"),
    (CommandNotFound("frobnicate"), "code.sandbox_command_not_found", "frobnicate"),
    (NetworkingDisabled("no network"), "code.sandbox_networking_disabled", "no network"),
    (FetchError("refused", rule="private_address"), "code.sandbox_fetch", "refused"),
    (SandboxDestroyed("closed"), "code.sandbox_destroyed", "closed"),
    (SessionError("worker gone"), "code.sandbox_session", "worker gone"),
    (Conflict(["b.txt", "a.txt"]), "code.sandbox_conflict", "nothing was written: a.txt, b.txt"),
    (NotAsShown(), "code.sandbox_not_as_shown", "look at them as they are now, then apply again"),
    (CheckpointGone("ended"), "code.sandbox_checkpoint_gone", "ended"),
)
IDS = [type(error).__name__ for error, _, _ in CASES]


def _kinds() -> set[type[SandboxError]]:
    return {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SandboxError)}


def test_every_kind_of_error_has_its_own_code_and_is_in_the_package_and_in_this_file() -> None:
    assert {type(error) for error, _, _ in CASES} == _kinds()
    assert {kind.__name__ for kind in _kinds()} <= set(sandbox_kernel.__all__)
    assert len({kind.code for kind in _kinds()}) == len(_kinds())


@pytest.mark.parametrize(("error", "code", "words"), CASES, ids=IDS)
def test_an_error_has_its_code_and_says_what_happened(error: SandboxError, code: str, words: str) -> None:
    assert error.code == code
    assert words in str(error)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(("error", "code", "words"), CASES, ids=IDS)
def test_an_error_is_the_same_after_pickling_and_copying(
    error: SandboxError, code: str, words: str, protocol: int
) -> None:
    back = pickle.loads(pickle.dumps(error, protocol))
    assert type(back) is type(error)
    assert (str(back), back.args, back.code, vars(back)) == (str(error), error.args, code, vars(error))
    assert vars(copy.deepcopy(error)) == vars(error)


def test_the_result_goes_with_the_error_to_another_interpreter() -> None:
    program = (
        "import pickle, sys; error = pickle.load(sys.stdin.buffer);"
        "print(type(error).__name__, error.timeout, error.result.stdout, error.result.status)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(CASES[1][0]), capture_output=True, timeout=60, check=True
    )
    assert answer.stdout == b"SandboxTimeout 2.5 so far timeout\n"


def test_details_are_attributes_and_not_only_words() -> None:
    assert EnforcerFailed("bubblewrap", "no mount").enforcer == "bubblewrap"
    assert EnforcerUnavailable("landlock", "old kernel").message == "old kernel"
    assert FetchError("refused", rule="private_address").rule == "private_address"
    assert FetchError("refused").rule == "http_error"
    assert MemoryExceeded(64).result is None
    assert str(SandboxTimeout(5.0)) == "execution timed out after 5s"
