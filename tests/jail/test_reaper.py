"""What is left of a jail's end is done in the background, but never lost and never piled up."""

import threading

from sandbox_kernel.jail.spawner import MOST, Reaper


def test_the_rest_is_done_on_another_thread() -> None:
    undertaker, seen = Reaper(), []
    undertaker.take(lambda: seen.append(threading.current_thread()))
    assert undertaker.wait()
    assert len(seen) == 1
    assert seen[0] is not threading.current_thread()


def test_one_too_many_is_done_by_whoever_brings_it() -> None:
    undertaker, gate, seen = Reaper(), threading.Event(), []
    for _ in range(MOST):
        undertaker.take(lambda: seen.append(gate.wait(20)))
    undertaker.take(lambda: seen.append(threading.current_thread()))
    assert seen == [threading.current_thread()]
    gate.set()
    assert undertaker.wait()
    assert len(seen) == MOST + 1


def test_what_fails_does_not_stop_the_others() -> None:
    undertaker, seen = Reaper(), []

    def fail() -> None:
        raise OSError("gone already")

    undertaker.take(fail)
    undertaker.take(lambda: seen.append(1))
    assert undertaker.wait()
    assert seen == [1]


def test_waiting_tells_when_it_took_too_long() -> None:
    undertaker, gate = Reaper(), threading.Event()

    def wait() -> None:
        gate.wait(20)

    undertaker.take(wait)
    assert not undertaker.wait(0.01)
    gate.set()
    assert undertaker.wait()
