"""Runs a library peer in a separate process, because some libraries count the threads of their caller.

    python -m benchmarks.library_peer NAME CODE

Reads one number for each execution from standard input, runs all of them at once, each in a thread, and prints the
number when that execution is done, with the reason if it failed. Used by ``many_at_once``.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from benchmarks.start_peers import one_peer

_MOST = 64


class LibraryPeer:
    """The process, and its unfinished executions."""

    def __init__(self, argv: list[str]) -> None:
        self._program = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self._under_way: dict[int, Future[None]] = {}
        self._last = 0
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def submit(self) -> Future[None]:
        """Start one execution; if it fails, the future has the peer's message. Called from one thread."""
        assert self._program.stdin is not None
        self._last += 1
        done = self._under_way[self._last] = Future()
        self._program.stdin.write(f"{self._last}\n")
        return done

    def close(self) -> None:
        """End the process."""
        assert self._program.stdin is not None
        self._program.stdin.close()
        self._program.wait()
        self._listener.join()

    def _listen(self) -> None:
        assert self._program.stdout is not None
        for line in self._program.stdout:
            number, _, reason = line.strip().partition(" ")
            if not number.isdigit() or int(number) not in self._under_way:
                continue  # a line that the peer printed itself
            done = self._under_way.pop(int(number))
            if reason:
                done.set_exception(RuntimeError(reason))
            else:
                done.set_result(None)
        for done in self._under_way.values():
            done.set_exception(RuntimeError("its program ended"))


def library_peer(name: str, code: str) -> LibraryPeer:
    """Start a process with the peer of this name."""
    return LibraryPeer([sys.executable, "-m", "benchmarks.library_peer", name, code])


def main() -> None:
    """Serve one peer until the end of the input."""
    name, code = sys.argv[1:]
    case = one_peer(name, code)
    printing = threading.Lock()

    def once(number: str) -> None:
        reason = ""
        try:
            case()
        except Exception as error:  # any exception of a peer is reported
            reason = " ".join(str(error).split()) or type(error).__name__
        with printing:
            print(f"{number} {reason}", flush=True)

    with ThreadPoolExecutor(_MOST) as threads:
        for line in sys.stdin:
            threads.submit(once, line.strip())


if __name__ == "__main__":
    main()
