"""Limits check themselves: a number that cannot be meant is refused, with the number and an example."""

import math
import pickle
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import (
    DEFAULT_MEMORY_MB,
    MAX_MEMORY_MB,
    MAX_TIMEOUT_S,
    MIB,
    Limit,
    Limits,
    check_memory_mb,
    check_timeout,
    quoted,
)


def test_a_number_too_long_to_write_is_quoted_by_its_kind() -> None:
    assert quoted(10**5000) == "int with too many digits to write"
    assert quoted("x" * 1000) == "'" + "x" * 59 + "…"
    assert quoted(math.nan) == "nan"


@given(st.floats(min_value=1e-6, max_value=MAX_TIMEOUT_S) | st.integers(min_value=1, max_value=int(MAX_TIMEOUT_S)))
def test_every_positive_finite_timeout_up_to_a_week_is_taken_as_it_is(value: float) -> None:
    assert check_timeout(value) == value
    assert isinstance(check_timeout(value), float)


@given(st.integers(min_value=1, max_value=MAX_MEMORY_MB))
def test_every_whole_number_of_megabytes_is_taken(value: int) -> None:
    assert check_memory_mb(value) == value


def test_the_defaults_are_those_of_the_contract() -> None:
    assert Limits().to_dict() == {
        "cpu_seconds": None,
        "processes": 64,
        "open_files": 256,
        "disk_mb": 256,
        "output_bytes": MIB,
        "fuel": None,
    }
    assert DEFAULT_MEMORY_MB == 2048


#: What the complaint must say, and the values that bring it about.
WRONG_TIMEOUTS: dict[str, list[object]] = {
    "finite and above 0": [0, -1, -0.0, math.nan, math.inf, -math.inf],
    "for example timeout=5": [True, False, "5", None, [5], 5j, b"5"],
    "a week": [MAX_TIMEOUT_S + 1, 1e300, 10**400, 10**5000],
}
WRONG_MEMORY: dict[str, list[object]] = {
    f"MB must be a whole number between 1 and {MAX_MEMORY_MB}": [
        0,
        -1,
        MAX_MEMORY_MB + 1,
        10**30,
        True,
        1.5,
        "256",
        None,
    ],
}


@pytest.mark.parametrize(("check", "wrong"), [(check_timeout, WRONG_TIMEOUTS), (check_memory_mb, WRONG_MEMORY)])
def test_a_wrong_timeout_or_memory_limit_is_refused_with_the_value(
    check: Callable[[object], object], wrong: dict[str, list[object]]
) -> None:
    for told, values in wrong.items():
        for value in values:
            with pytest.raises(InvalidRequest, match=told) as caught:
                check(value)
            assert quoted(value) in str(caught.value)


@pytest.mark.parametrize("name", ["processes", "open_files", "disk_mb", "output_bytes", "fuel", "cpu_seconds"])
def test_a_wrong_limit_is_refused_by_its_name(name: str) -> None:
    wrong: tuple[object, ...] = (-1, 1 << 80, 10**5000, True, "64", math.nan, math.inf, 1e300)
    for value in wrong if name == "cpu_seconds" else (*wrong, 1.5):
        with pytest.raises(InvalidRequest, match=rf"limits\.{name}"):
            Limits(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Limits(1.0)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("name", "least"), [("processes", 1), ("open_files", 16), ("disk_mb", 1), ("fuel", 1), ("output_bytes", 0)]
)
def test_the_least_that_is_taken_is_taken_and_one_less_is_not(name: str, least: int) -> None:
    assert getattr(Limits(**{name: least}), name) == least
    with pytest.raises(InvalidRequest):
        Limits(**{name: least - 1})


def test_limits_are_frozen_hashable_and_picklable() -> None:
    limits = Limits(cpu_seconds=1.5, fuel=10)
    with pytest.raises(AttributeError):
        limits.processes = 1  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(limits)) == limits
    assert hash(limits) == hash(Limits(cpu_seconds=1.5, fuel=10))


def test_the_names_of_limits_are_those_of_the_contract() -> None:
    assert " ".join(Limit) == "timeout cpu memory processes disk open_files output fuel gpu_memory"
