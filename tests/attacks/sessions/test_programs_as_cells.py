"""The hostile programs of the list as cells of a session: it lives on with its state, and nothing outside is touched."""

import os
import resource
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel.backends.process import ProcessBackend, ProcessConfig
from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.limits import MIB, Limits
from sandbox_kernel.model import describe_end
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.session.open_session import open_session
from sandbox_kernel.session.session import Session
from sandbox_kernel.workspace.folder_copies import FolderCopies
from tests.attacks.harness import (
    GROWTH_MB,
    Attack,
    complaints,
    listeners,
    make_sentinels,
    prepared,
    sentinel_state,
    starved,
    threads,
)
from tests.attacks.programs import LISTED
from tests.attacks.sessions.ends_in_a_session import DIFFERENCES, REMARKS, in_a_session
from tests.conftest import holdings

#: S12 is about a policy that a shell's session refuses; it has a test of its own. R26 is about input, which cells ask for.
CELLS = [attack for attack in LISTED if attack.language in ("python", "command") and attack.id not in ("S12", "R26")]
Opened = Callable[[Attack], Session]

#: What each language's session holds, and how it is asked for it.
STATE = {"python": ("kept = 41", "print('kept', kept)"), "command": ("kept=41", "echo kept $kept")}


def namespace(pid: int | str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def lives(pid: str) -> bool:
    """Whether a process still runs; one that is dead and not yet forgotten by its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture(scope="module")
def opened() -> Iterator[Opened]:
    """One session for all attacks that need the same one; nothing of them is left when they are closed."""
    sessions: dict[tuple[str, int, Limits, str], Session] = {}
    threads_before, held_before = threads(), holdings()

    def open_for(attack: Attack) -> Session:
        key = (attack.language, attack.memory_mb, attack.limits, attack.policy)
        if key not in sessions:
            backend = ProcessBackend(ProcessConfig(pool_size=0), policy=SandboxPolicy.preset(attack.policy))
            sessions[key] = open_session(
                backend, attack.language, memory_mb=max(attack.memory_mb, 256), limits=attack.limits, checkpoints=3
            )
            assert sessions[key].run(STATE[attack.language][0]).ok
        return sessions[key]

    yield open_for
    homes = {namespace(session._supervisor.live.jail.init_pid) for session in sessions.values()}  # type: ignore[union-attr]
    assert "" not in homes
    assert namespace("self") not in homes
    for session in sessions.values():
        session.close()
    for each in threading.enumerate():
        if each.name == "sandbox-background":  # it looks once a second whether its session is closed
            each.join(30)
    left = [entry for entry in os.listdir("/proc") if entry.isdigit() and namespace(entry) in homes and lives(entry)]
    assert left == [], "processes outlived their session"
    assert len(threads()) <= len(threads_before), threads()
    assert [new - old for old, new in zip(held_before, holdings(), strict=True)] == [set()] * len(held_before)


@pytest.mark.parametrize("attack", [pytest.param(a, id=a.id, marks=pytest.mark.attack(a.id, "session")) for a in CELLS])
@pytest.mark.one_case
def test_a_hostile_cell_ends_as_it_must_and_the_session_goes_on(
    attack: Attack, tmp_path: Path, opened: Opened, record_property: Callable[[str, object], None]
) -> None:
    attack = in_a_session(attack)
    session = opened(attack)
    sentinels = make_sentinels(tmp_path)
    before = sentinel_state(sentinels)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    waited = starved()
    with listeners() as doors:
        result = session.run(prepared(attack, sentinels, doors), timeout=attack.timeout)
        assert doors.seen == [], "a listener of the host was reached"
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident) / 1024
    # The host keeps a copy of the session's files.
    most_mb = GROWTH_MB + (2 * attack.limits.output_bytes + FolderCopies.most_copy_bytes) / MIB
    assert grown_mb < most_mb, f"the host grew by {grown_mb:.0f} MB"
    assert sentinel_state(sentinels) == before, "a sentinel outside was changed"
    told = (result.status, result.limit, result.notes, (result.stdout + result.stderr)[-1000:])
    remark = (", rolled back" if result.rolled_back else "") + REMARKS.get(attack.id, "")
    record_property("ended", describe_end(result) + remark)
    assert complaints(attack, result, starved() - waited) == [], told
    tell = STATE[attack.language][1]
    assert session.run(tell, timeout=20).stdout == "kept 41\n", told
    if not clean_up(attack, session, rolled_back=result.rolled_back):
        return
    assert session.run(tell, timeout=20).stdout == "kept 41\n", "the state before the attack did not come back"


def clean_up(attack: Attack, session: Session, *, rolled_back: bool) -> bool:
    """Let the next attack find the session as this one did: by undo, or from the beginning where a disk is full."""
    if attack.limit == "disk":
        session.restart()
        assert session.run(STATE[attack.language][0]).ok
        return True
    if rolled_back:
        return False
    session.undo(2)
    return True


def test_every_difference_is_of_a_cell_that_exists() -> None:
    assert set(DIFFERENCES) <= {attack.id for attack in CELLS}


@pytest.mark.attack("S12", "session")
def test_a_shell_that_may_start_nothing_is_refused_before_it_opens() -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0), policy=SandboxPolicy.preset("strict"))
    with pytest.raises(PolicyViolation, match="denies starting processes"):
        open_session(backend, "command")


@pytest.mark.attack("S12", "session")
@pytest.mark.slow
def test_a_python_cell_that_may_start_nothing_starts_nothing() -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0), policy=SandboxPolicy.preset("strict"))
    code = (
        "import ctypes, glob, os, subprocess\n"
        "for loader in glob.glob('/lib*/ld-linux-*'):\n"
        "  try: print('RAN', subprocess.run([loader, '/bin/echo', 'hi']))\n"
        "  except OSError as e: print(type(e).__name__)\n"
        "print(ctypes.CDLL(None).system(b'echo RAN'))"
    )
    with open_session(backend, "python", memory_mb=256) as session:
        result = session.run(code, timeout=20)
        assert result.ok
        assert "RAN" not in result.stdout


@pytest.mark.attack("F14", "session")
@pytest.mark.slow
def test_sessions_of_different_tenants_share_no_file_process_or_variable() -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0))
    look = (
        "import glob, os\nprint(sorted(glob.glob('/box/*') + glob.glob('/tmp/*')), "
        "[p for p in glob.glob('/proc/[0-9]*/cwd') if os.access(p, os.R_OK) and os.path.exists(p + '/mine')], "
        "'mine' in globals(), os.listdir('/dev/shm'))"
    )
    with open_session(backend, memory_mb=256) as one, open_session(backend, memory_mb=256) as other:
        hide = "mine = 1\nfor p in ('/box/mine', '/tmp/mine', '/dev/shm/mine'): open(p, 'w').write('secret')"
        # An interpreter that lies below the host's /tmp is shown there too.
        seen = other.run(look, timeout=60)
        before = seen.stdout
        assert before.startswith("['/tmp/") or before == "[] [] False []\n", seen
        assert one.run(hide, timeout=60).ok
        again = other.run(look, timeout=60)
        assert again.stdout == before, again
        assert "mine" not in before
        assert other.run(
            "open('/box/mine', 'w').write('other'); import os; os.kill(os.getpid(), 9)", timeout=60
        ).rolled_back
        assert one.run("print(open('/box/mine').read())", timeout=60).stdout == "secret\n"
