"""One order in which evidence counts, for runs, cells and WebAssembly guests."""

import pytest

from sandbox_kernel.jail.ending import LIMITS, STOPPED, Ending, gave_up_near, judge, survived_limit
from sandbox_kernel.model import Limit, Status

NOTHING = {"kills": False, "forks_refused": False, "said": (), "disk_full": False, "truncated": False}


def test_memory_counts_before_what_the_host_stopped_it_for_and_that_before_its_own_word() -> None:
    both = judge(out_of_memory=True, stopped_by=Ending.TIMEOUT, own=Status.OK, survived=Limit.DISK)
    assert both == (Status.MEMORY_EXCEEDED, "memory")
    assert judge(stopped_by=Ending.TIMEOUT, own=Status.OK, survived=Limit.DISK) == (Status.TIMEOUT, "timeout")
    assert judge(own=Status.OK, survived=Limit.DISK) == (Status.OK, "disk")
    assert judge() == (Status.KILLED, None)


@pytest.mark.parametrize("ending", [end for end in Ending if end in STOPPED])
def test_everything_that_the_host_stops_has_a_status_and_a_limit_when_it_is_one(ending: Ending) -> None:
    status, limit = judge(stopped_by=ending)
    assert (status, limit) == (STOPPED[ending], ending.value if ending in LIMITS else None)


@pytest.mark.parametrize(
    ("own", "limit"),
    [
        (Status.TIMEOUT, "timeout"),
        (Status.CPU_LIMIT, "cpu"),
        (Status.FUEL_EXHAUSTED, "fuel"),
        (Status.FAILED, "output"),
    ],
)
def test_a_status_that_names_a_limit_has_that_limit(own: Status, limit: str) -> None:
    assert judge(own=own, survived=Limit.OUTPUT) == (own, limit)


@pytest.mark.parametrize(
    ("seen", "limit"),
    [
        ({}, None),
        ({"truncated": True}, "output"),
        ({"truncated": True, "disk_full": True}, "disk"),
        ({"disk_full": True, "said": ("open_files",)}, "open_files"),
        ({"said": ("open_files", "disk")}, "disk"),
        ({"said": ("disk", "processes")}, "processes"),
        ({"said": ("disk",), "forks_refused": True}, "processes"),
        ({"forks_refused": True, "kills": True}, "memory"),
    ],
)
def test_of_several_limits_that_were_met_the_heaviest_is_named(seen: dict[str, object], limit: str | None) -> None:
    assert survived_limit(**{**NOTHING, **seen}) == limit  # type: ignore[arg-type]


def test_a_program_gives_up_for_memory_with_three_quarters_of_it() -> None:
    assert [gave_up_near(peak, 100) for peak in (None, 0, 74, 75, 100)] == [False, False, False, True, True]
