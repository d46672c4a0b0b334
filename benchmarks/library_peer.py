"""A peer that is a library, in a program of its own: some count the threads of the program that calls them.

    python -m benchmarks.library_peer NAME CODE

It is told a number for each execution on its standard input, runs as many as it was told of at once, each in a thread,
and says the number again when that one is done, with the reason if it failed. Used by ``many_at_once``.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from benchmarks.start_peers import one_peer

_MOST = 64


class LibraryPeer:
    """The program, and what is under way in it."""

    def __init__(self, argv: list[str]) -> None:
        self._program = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self._under_way: dict[int, Future[None]] = {}
        self._last = 0
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def submit(self) -> Future[None]:
        """Begin one execution; the future fails with what the peer said. Called from one thread."""
        assert self._program.stdin is not None
        self._last += 1
        done = self._under_way[self._last] = Future()
        self._program.stdin.write(f"{self._last}\n")
        return done

    def close(self) -> None:
        """End the program."""
        assert self._program.stdin is not None
        self._program.stdin.close()
        self._program.wait()
        self._listener.join()

    def _listen(self) -> None:
        assert self._program.stdout is not None
        for line in self._program.stdout:
            number, _, reason = line.strip().partition(" ")
            if not number.isdigit() or int(number) not in self._under_way:
                continue  # what the peer prints itself
            done = self._under_way.pop(int(number))
            if reason:
                done.set_exception(RuntimeError(reason))
            else:
                done.set_result(None)
        for done in self._under_way.values():
            done.set_exception(RuntimeError("its program ended"))


def library_peer(name: str, code: str) -> LibraryPeer:
    """A program with the peer of that name in it."""
    return LibraryPeer([sys.executable, "-m", "benchmarks.library_peer", name, code])


def main() -> None:
    """Serve one peer until the end of the input."""
    name, code = sys.argv[1:]
    case = one_peer(name, code)
    told = threading.Lock()

    def once(number: str) -> None:
        reason = ""
        try:
            case()
        except Exception as error:  # whatever a peer fails with is what is told
            reason = " ".join(str(error).split()) or type(error).__name__
        with told:
            print(f"{number} {reason}", flush=True)

    with ThreadPoolExecutor(_MOST) as threads:
        for line in sys.stdin:
            threads.submit(once, line.strip())


if __name__ == "__main__":
    main()
