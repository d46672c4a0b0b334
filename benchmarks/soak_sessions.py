"""Runs thousands of mixed cells, some of which crash. Is every value as expected, and is nothing left behind?

    python -m benchmarks.soak_sessions [--cells 10000] [--seed 1] [--language python] [--minutes 60] [--short]

A model in this process holds the expected state of the session. Cells change it, fail, crash in every known way, are
interrupted or undone; after each the session is compared. Stops at the first difference; else prints counts.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.soak_holdings import own_leaves
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.jail.accounting.processes import tree
from sandbox_kernel.model import ExecResult, Status
from sandbox_kernel.session.open_session import open_session
from sandbox_kernel.session.session import Session


@dataclass
class State:
    """The expected state: a number, the length of a list, and the text of a file."""

    number: int = 0
    length: int = 0
    text: str = ""

    def copy(self) -> State:
        """Return a copy."""
        return State(self.number, self.length, self.text)


@dataclass
class Words:
    """The code of the cells in one language."""

    begin: str
    ask: str
    change: Callable[[State], str]
    fail: str
    deaths: dict[str, str]
    endless: str
    comment: str = ""


def _python() -> Words:
    return Words(
        begin=(
            "number, items = 0, []\nopen('f', 'w').close()\n"
            "import contextlib, ctypes, os, signal, subprocess, sys, threading"
        ),
        ask="print(number, len(items), open('f').read())",
        change=lambda s: (
            f"number = {s.number}\nwhile len(items) < {s.length}: items.append(object())\n"
            f"del items[{s.length}:]\nopen('f', 'w').write({s.text!r})"
        ),
        fail="raise ValueError('as asked')",
        deaths={
            "exit": "os._exit(3)",
            "kill": "os.kill(os.getpid(), 9)",
            "segfault": "ctypes.string_at(0)",
            "memory": "hog = bytearray(b'1') * (600 << 20)",
            "group": "os.killpg(0, 9)",
            "nonsense": (
                "for f in range(3, 9):\n    with contextlib.suppress(OSError):\n        os.write(f, b'\\xff' * 99999)\n"
                "signal.pause()"
            ),
            "daemon": "subprocess.Popen(['setsid', 'sleep', '1000'])\nos._exit(1)",
        },
        endless="while True: pass",
    )


def _javascript() -> Words:
    return Words(
        begin="let number = 0, items = []; const fs = require('fs'); fs.writeFileSync('f', '')",
        ask="console.log(number, items.length, fs.readFileSync('f', 'utf8'))",
        change=lambda s: (
            f"number = {s.number}; while (items.length < {s.length}) items.push({{}}); items.length = {s.length}; "
            f"fs.writeFileSync('f', '{s.text}')"
        ),
        fail="throw new Error('as asked')",
        deaths={
            "exit": "process.reallyExit(3)",
            "kill": "process.kill(process.pid, 'SIGKILL'); await new Promise(() => {})",
            "abort": "process.abort()",
            "memory": "const hog = []; while (true) hog.push(Buffer.alloc(1 << 26, 1))",
        },
        endless="while (true);",
    )


def _command() -> Words:
    return Words(
        begin="number=0; items=(); : > f",
        ask='echo "$number ${#items[@]} $(cat f)"',
        change=lambda s: f"number={s.number}; items=($(seq {s.length})); printf %s '{s.text}' > f",
        fail="exit 7",
        deaths={"kill": "kill -9 $$", "segfault": "kill -SEGV $$", "worker": "kill -9 $PPID; sleep 1000"},
        endless="while :; do :; done",
    )


LANGUAGES = {"python": _python, "javascript": _javascript, "command": _command}


@dataclass
class Soak:
    """One soak. ``step`` does one random action and then checks the session."""

    session: Session
    words: Words
    dice: random.Random
    now: State = field(default_factory=State)
    past: list[State] = field(default_factory=list)
    counts: collections.Counter[str] = field(default_factory=collections.Counter)

    def begin(self) -> None:
        """Set the session to the first state of the model."""
        assert self.session.run(self.words.begin).ok

    def commit(self) -> None:
        """Record that a cell has changed the state, which undo can now take back."""
        self.past = [*self.past, self.now.copy()][-5:]

    def step(self) -> None:
        """Do one random action."""
        kind = self.dice.choices(("change", "fail", "die", "timeout", "interrupt", "undo"), (60, 8, 18, 3, 3, 8))[0]
        self.counts[kind] += 1
        getattr(self, kind)()
        self.check()

    def change(self) -> None:
        """Run a cell that succeeds."""
        before = self.now.copy()
        self.now = State(self.dice.randrange(10**6), self.dice.randrange(50), f"t{self.dice.randrange(10**6)}")
        assert self.session.run(self.words.change(self.now)).ok
        self.past = [*self.past, before][-5:]

    def fail(self) -> None:
        """Run a cell that raises; its changes stay."""
        result = self.session.run(self.words.fail)
        assert result.status is Status.FAILED, result
        self.commit()

    def die(self) -> None:
        """Run a cell that changes everything and then crashes."""
        name = self.dice.choice(sorted(self.words.deaths))
        self.counts[f"death by {name}"] += 1
        self.lost(self.session.run(f"{self._spoil()}\n{self.words.deaths[name]}", timeout=120))

    def timeout(self) -> None:
        """Run a cell that does not end."""
        self.lost(self.session.run(f"{self._spoil()}\n{self.words.endless}", timeout=0.2))

    def interrupt(self) -> None:
        """Run a cell and interrupt it."""
        go = {"python": "print('go')", "javascript": "console.log('go')", "command": "echo go"}[
            str(self.session.language)
        ]
        result = self.session.run(
            f"{go}\n{self.words.endless}", timeout=120, on_output=lambda *_: self.session.interrupt() and None
        )
        assert result.status is Status.INTERRUPTED, result
        if not result.rolled_back:
            self.commit()

    def undo(self) -> None:
        """Undo up to three cells."""
        steps = self.dice.randint(1, 3)
        if steps <= len(self.past):
            self.session.undo(steps)
            self.now = self.past[-steps]
            self.past = self.past[:-steps]

    def lost(self, result: ExecResult) -> None:
        """Check the result of a cell that was ended."""
        assert result.rolled_back, result

    def check(self) -> None:
        """Compare the session with the model; that is a cell too."""
        result = self.session.run(self.words.ask, timeout=60)
        wanted = f"{self.now.number} {self.now.length} {self.now.text}".strip()
        assert result.stdout.strip() == wanted, (wanted, result)
        self.commit()

    def _spoil(self) -> str:
        return self.words.change(State(-1, 1, "spoilt"))


def main() -> int:
    """Run the soak; returns 0 if all was as expected and nothing is left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--language", choices=sorted(LANGUAGES), default="python")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--short", action="store_true", help="25 cells")
    options = parser.parse_args()
    options.cells = 25 if options.short else options.cells
    backend = ProcessBackend()
    began = time.monotonic()
    descriptors = 0
    with open_session(backend, options.language, memory_mb=256) as session:
        soak = Soak(session, LANGUAGES[options.language](), random.Random(options.seed))
        soak.begin()
        soak.check()
        done = 0
        while done < options.cells and time.monotonic() - began < options.minutes * 60:
            soak.step()
            done += 1
            if done == 100:
                descriptors = len(os.listdir("/proc/self/fd"))
            if done % 1000 == 0:
                print(f"{done} cells, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        live = session._supervisor.live
        assert live is not None
        grown = len(os.listdir("/proc/self/fd")) - descriptors if descriptors else 0
        pids = tree(live.jail.init_pid)
    shared = backend._pool
    shared.close()
    left = [pid for pid in pids if os.path.exists(f"/proc/{pid}/exe")]
    print(f"{options.language}: {done} cells, seed {options.seed}, {time.monotonic() - began:.0f} s, all as expected")
    print(", ".join(f"{name} {count}" for name, count in sorted(soak.counts.items())))
    print(f"left: {len(left)} processes, {len(own_leaves())} control groups; descriptors grown by {grown}")
    return 1 if left or own_leaves() or grown > 4 else 0


if __name__ == "__main__":
    sys.exit(main())
