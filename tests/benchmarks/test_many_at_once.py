import asyncio

from benchmarks.many_at_once import Contender, Pace, turn


def test_so_many_run_at_any_time_and_never_more() -> None:
    now, most = 0, 0

    async def run() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    pace = Pace()
    asyncio.run(turn(Contender(run), 4, 20, pace))
    assert (most, len(pace.times), len(pace.rates), pace.failures) == (4, 20, 1, [])


def test_what_failed_is_told_and_not_counted() -> None:
    calls = iter(range(10))

    async def run() -> None:
        if next(calls) % 2:
            raise RuntimeError("too many")

    pace = Pace()
    asyncio.run(turn(Contender(run), 2, 10, pace))
    assert (len(pace.times), pace.failures) == (5, ["too many"] * 5)


def test_a_turn_ends_when_the_stock_is_full_again() -> None:
    done = []

    async def run() -> None:
        done.append("run")

    asyncio.run(turn(Contender(run, lambda: done.append("restock")), 1, 2, Pace()))
    assert done == ["run", "run", "restock"]


def test_a_slow_one_runs_once_for_each_that_is_at_once() -> None:
    async def run() -> None: ...

    assert [Contender(run).executions(level, 48) for level in (1, 64)] == [48, 128]
    assert [Contender(run, slow=True).executions(level, 48) for level in (1, 64)] == [4, 64]
