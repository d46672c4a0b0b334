"""A canary is believed only with its control. Here the sandbox is a fake, so that it can fail in every way."""

import errno
import json
import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel import ProcessBackend, ProcessConfig, SandboxPolicy, validate_policy
from sandbox_kernel.backends.probes import canaries
from sandbox_kernel.backends.probes.canaries import Measurement, Mechanisms, Run, look_outside, measure, set_out
from sandbox_kernel.backends.probes.canary_programs import DAEMON, LIMIT_OF, LOOK, NO_START, TRIALS, UP
from sandbox_kernel.backends.probes.capabilities import _PROOFS, _sum_up
from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.model import ExecRequest, ExecResult, Status
from tests.waiting import until

WORDS = Mechanisms(walls="walls", filter="filter", memory="memory", processes="processes", cpu="cpu", clock="clock")
LOOKS = tuple(part.split('"')[0] for part in LOOK.split('attempt("')[1:])
CALLS = tuple(re.findall(r'"([^"]+)": (?:number_of|vsock)', LOOK))
LIMITS = tuple(trial.name for trial in TRIALS)
DAEMONS = ("outlive the run", "survive the kill")
#: In the code of the daemon that is there until it is killed.
STAYS = "if True: "

Answer = Callable[[ExecRequest], ExecResult]


def looks(succeed: bool) -> str:
    """What the looking canary prints when everything succeeds, or nothing does."""
    answers = dict.fromkeys(CALLS, 0 if succeed else errno.EPERM)
    return json.dumps({"reached": answers, **{name: [succeed, "what came back"] for name in LOOKS}})


def fake(*, look: str, over: Answer | None = None, below: Answer | None = None, daemon: Answer | None = None) -> Run:
    """A sandbox that answers as told; a daemon, and what stays below its limit, ends well unless told otherwise."""

    def fine(request: ExecRequest) -> ExecResult:
        return ExecResult(status=Status.OK, exit_code=0)

    def seen(request: ExecRequest) -> ExecResult:
        return ExecResult(status=Status.TIMEOUT if STAYS in str(request.code) else Status.OK, stdout=f"{UP}\n")

    def stopped(request: ExecRequest) -> ExecResult:
        name = next(trial.name for trial in TRIALS if trial.over == request.code)
        return ExecResult(status=Status.FAILED, limit=LIMIT_OF[name])

    def run(request: ExecRequest) -> ExecResult:
        if request.code == LOOK:
            return ExecResult(stdout=look, exit_code=0)
        if request.code in [trial.over for trial in TRIALS]:
            return (over or stopped)(request)
        if request.code in [trial.below for trial in TRIALS]:
            return (below or fine)(request)
        assert str(request.code).splitlines()[1] == DAEMON.splitlines()[1]
        return (daemon or seen)(request)

    return run


def lines(run: Run) -> dict[str, Measurement]:
    return {line.name: line for line in measure(run, WORDS)}


def control(monkeypatch: pytest.MonkeyPatch, *refused: str, **answers: int) -> None:
    """Let the control outside do everything but what is ``refused``; some needs rights that not every user has."""
    found: dict[str, object] = {name: [name not in refused, ""] for name in LOOKS}
    found["reached"] = {**dict.fromkeys(CALLS, errno.EFAULT), **answers}
    monkeypatch.setattr(canaries, "look_outside", lambda bait: found)
    # After the one that is asked for first, for the datagram of the canary.
    arrived = iter((False, "send UDP to the host" not in refused))
    monkeypatch.setattr(canaries, "_has_datagram", lambda udp: next(arrived))


@pytest.fixture
def every_control_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    control(monkeypatch)


def test_a_sandbox_that_holds_gets_a_yes_on_every_line(every_control_succeeds: None) -> None:
    found = lines(fake(look=looks(False)))
    assert set(found) == {*LOOKS, *LIMITS, *DAEMONS}
    assert all(line.enforced is True for line in found.values()), found


def test_a_sandbox_that_lets_everything_through_gets_a_no_on_every_line() -> None:
    def reach(request: ExecRequest) -> str:
        with socket.socket(type=socket.SOCK_DGRAM) as sender:
            sender.sendto(b"x", ("127.0.0.1", json.loads(request.args[0])["udp"]))
        return looks(True)

    open_door = fake(look="", over=lambda _: ExecResult(status=Status.OK, exit_code=0))

    def run(request: ExecRequest) -> ExecResult:
        return ExecResult(stdout=reach(request), exit_code=0) if request.code == LOOK else open_door(request)

    found = lines(run)
    for name in DAEMONS:
        del found[name]
    assert all(line.enforced is False for line in found.values()), found


def test_a_datagram_that_was_sent_but_never_arrived_counts_as_stopped() -> None:
    line = lines(fake(look=looks(True)))["send UDP to the host"]
    assert line.enforced is True
    assert "nothing arrived" in line.evidence


def test_a_file_that_appeared_outside_counts_more_than_what_the_canary_said() -> None:
    def run(request: ExecRequest) -> ExecResult:
        if request.code == LOOK:
            Path(json.loads(request.args[0])["folder"], "written").touch()
        return fake(look=looks(False))(request)

    assert lines(run)["write outside"].enforced is False


@pytest.mark.parametrize(
    "name",
    [
        "read a secret outside", "read the host's password hashes", "connect to host TCP", "write outside",
        "send UDP to the host", "see host processes", "inherit the host's environment", "write host settings",
    ],
)  # fmt: skip
@pytest.mark.one_case
def test_a_line_whose_control_fails_is_not_testable_here(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    control(monkeypatch, name)
    line = lines(fake(look=looks(False)))[name]
    assert line.enforced is None
    assert "the host itself could not" in line.evidence


def test_an_ordinary_process_tries_every_line_and_gets_other_answers_than_a_filter_gives() -> None:
    with set_out() as (bait, _):
        outside = look_outside(bait)
    assert set(outside) == {*LOOKS, "reached"}
    assert outside["inherit the host's environment"][0] and outside["see host processes"][0]
    assert set(outside["reached"]) == set(CALLS)
    assert outside["reached"]["make a user namespace"] == errno.EINVAL


def test_a_call_that_an_ordinary_process_is_refused_alike_is_not_testable_and_needs_no_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    control(monkeypatch, bpf=errno.EPERM)
    found = lines(fake(look=looks(False)))
    assert (found["bpf"].enforced, found["bpf"].absent, found["bpf"].kept) == (None, True, True)
    assert "EPERM" in found["bpf"].evidence
    assert found["mount"].enforced is True
    assert "outside: EFAULT" in found["mount"].evidence


def test_without_an_ordinary_process_no_line_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canaries, "look_outside", lambda bait: {})
    found = lines(fake(look=looks(False)))
    assert {(found[name].enforced, found[name].kept) for name in LOOKS} == {(None, False)}


def test_bait_that_nobody_could_take_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("send UDP to the host", "be root")
    control(monkeypatch, *names)
    found = lines(fake(look=looks(False)))
    assert [found[name].kept for name in names] == [False, True]


def test_evidence_names_only_limits_that_were_met(every_control_succeeds: None) -> None:
    found = lines(fake(look=looks(False)))
    assert found["memory"].evidence == "took 1024 MB with 128 MB: failed, stopped at the memory limit; 48 MB: ok"


def test_an_attack_that_succeeded_is_a_no_even_where_its_control_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    control(monkeypatch, "read a secret outside")
    assert lines(fake(look=looks(True)))["read a secret outside"].enforced is False


@pytest.mark.parametrize("said", ["", "Traceback …", "[", "null"])
def test_a_canary_that_did_not_answer_proves_nothing(said: str) -> None:
    found = lines(fake(look=said))
    assert {found[name].enforced for name in found if found[name].mechanism == "walls"} == {None}
    assert "canary failed" in found["read a secret outside"].evidence


@pytest.mark.parametrize(
    ("answers", "names", "enforced"),
    [({"below": ExecResult(status=Status.FAILED)}, LIMITS, None),
     ({"over": ExecResult(status=Status.KILLED, limit=None)}, LIMITS, False),
     ({"daemon": ExecResult(status=Status.FAILED)}, DAEMONS, None)],
    ids=["stops what stays below", "another limit's name", "no daemon started"],
)  # fmt: skip
def test_a_limit_is_believed_only_by_its_own_name_and_where_less_is_allowed(
    answers: dict[str, ExecResult], names: list[str] | tuple[str, ...], enforced: bool | None
) -> None:
    found = lines(fake(look=looks(False), **{key: lambda _, said=said: said for key, said in answers.items()}))
    assert {found[name].enforced for name in names} == {enforced}


def test_a_limit_that_could_not_be_tried_says_why() -> None:
    def refuse(request: ExecRequest) -> ExecResult:
        raise EnforcerFailed("bubblewrap", "no room")

    found = lines(fake(look=looks(False), over=refuse))
    assert {found[name].enforced for name in LIMITS} == {None}
    assert all("no room" in found[name].evidence for name in LIMITS)


@pytest.fixture
def survivor() -> Iterator[Callable[[str], None]]:
    """Starts a process under a name, and ends it."""
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str) -> None:
        process = subprocess.Popen([name, "60"], executable="/bin/sleep")
        started.append(process)
        # A new program's words are in /proc a moment after its start is reported; whoever looks for it may end it.
        words = Path(f"/proc/{process.pid}/cmdline")
        until(lambda: process.poll() is not None or name.encode() in words.read_bytes())

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_daemon_that_is_still_there_is_found(survivor: Callable[[str], None]) -> None:
    def leave(request: ExecRequest) -> ExecResult:
        survivor(str(request.code).split('["')[1].split('"')[0])
        return ExecResult(status=Status.OK, exit_code=0)

    found = lines(fake(look=looks(False), daemon=leave))
    assert [found[name].enforced for name in DAEMONS] == [False, False]
    assert "1 of it left" in found["outlive the run"].evidence


def test_a_daemon_that_is_not_up_yet_when_it_is_to_be_killed_gets_more_time() -> None:
    patience = []

    def slow(request: ExecRequest) -> ExecResult:
        if STAYS not in str(request.code):
            return ExecResult(stdout=f"{UP}\n")
        patience.append(request.timeout)
        return ExecResult(status=Status.TIMEOUT, stdout=f"{UP}\n" if len(patience) == 2 else "")

    assert lines(fake(look=looks(False), daemon=slow))["survive the kill"].enforced is True
    assert len(patience) == 2 and patience[0] < patience[1]


def test_evidence_says_that_the_control_went_through(every_control_succeeds: None) -> None:
    assert lines(fake(look=looks(False)))["connect to host TCP"].evidence == "what came back; outside: goes through"


def test_where_no_process_may_start_none_is_counted_and_none_outlives_the_run() -> None:
    refused = ExecResult(status=Status.OK, exit_code=0, stdout=f"{NO_START}\n")
    daemon = ExecResult(status=Status.FAILED, exit_code=1, stderr=f"{NO_START}\n")
    found = lines(fake(look=looks(False), over=lambda _: refused, below=lambda _: refused, daemon=lambda _: daemon))
    assert found["processes"].enforced is True
    assert [(found[name].enforced, found[name].mechanism) for name in DAEMONS] == [(True, "filter")] * 2


def test_the_bait_is_taken_in_again() -> None:
    seen: dict[str, str] = {}

    def run(request: ExecRequest) -> ExecResult:
        if request.code == LOOK:
            seen.update({key: str(value) for key, value in json.loads(request.args[0]).items()})
            assert os.environ[seen["variable"]]
            assert (Path(seen["folder"]) / "secret").exists()
        return fake(look=looks(False))(request)

    lines(run)
    assert seen["variable"] not in os.environ
    assert not Path(seen["folder"]).exists()


def test_a_promise_is_kept_only_when_every_canary_of_it_was_stopped() -> None:
    def line(enforced: bool | None) -> Measurement:
        return Measurement(area="a", name=f"n{enforced}", enforced=enforced, mechanism="m", evidence="e")

    assert _sum_up([line(True), line(True)])
    for other in (False, None):
        assert not _sum_up([line(True), line(other)])
        assert f"n{other}" in _sum_up([line(True), line(other)]).evidence
    assert not _sum_up([])


def test_every_canary_that_a_promise_names_exists() -> None:
    assert {name for names in _PROOFS.values() for name in names} <= {*LOOKS, *LIMITS, *DAEMONS}


@pytest.mark.parametrize("name", ["strict", "standard"])
@pytest.mark.slow
def test_a_real_backend_enforces_the_policy_that_it_was_given(name: str) -> None:
    policy = SandboxPolicy.preset(name)
    backend = ProcessBackend(ProcessConfig(pool_size=0), policy=policy)
    capabilities = backend.capabilities()
    validate_policy(policy, capabilities)
    assert all(bool(line) for _, line in capabilities.enforced_limits.items()), capabilities.enforced_limits
