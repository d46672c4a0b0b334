"""Limits check themselves: a number that cannot be meant is refused, with the number and an example."""

from __future__ import annotations

import math
import pickle

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


def str_or_kind(value: object) -> str:
    """A name for a parameter: some numbers are too long to be written."""
    return "unwritable" if isinstance(value, int) and value > 1 << 100 else str(value)


def test_a_number_too_long_to_write_is_quoted_by_its_kind() -> None:
    assert quoted(10**5000) == "int with too many digits to write"
    assert quoted("x" * 1000) == "'" + "x" * 59 + "…"
    assert quoted(math.nan) == "nan"


@given(st.floats(min_value=1e-6, max_value=MAX_TIMEOUT_S) | st.integers(min_value=1, max_value=int(MAX_TIMEOUT_S)))
def test_every_positive_finite_timeout_up_to_a_week_is_taken_as_it_is(value: float) -> None:
    assert check_timeout(value) == value
    assert isinstance(check_timeout(value), float)


@pytest.mark.parametrize("value", [0, -1, -0.0, math.nan, math.inf, -math.inf])
def test_a_timeout_that_is_not_above_zero_is_refused_with_the_number(value: float) -> None:
    with pytest.raises(InvalidRequest, match="finite and above 0") as caught:
        check_timeout(value)
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("value", [True, False, "5", None, [5], 5j, b"5"])
def test_a_timeout_that_is_no_number_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(InvalidRequest, match="for example timeout=5"):
        check_timeout(value)


@pytest.mark.parametrize(
    "value", [MAX_TIMEOUT_S + 1, 1e300, 10**400, 10**5000], ids=["week", "float", "int", "unwritable"]
)
def test_a_timeout_of_more_than_a_week_is_refused_as_a_slip(value: float) -> None:
    with pytest.raises(InvalidRequest, match="a week"):
        check_timeout(value)


@given(st.integers(min_value=1, max_value=MAX_MEMORY_MB))
def test_every_whole_number_of_megabytes_is_taken(value: int) -> None:
    assert check_memory_mb(value) == value


@pytest.mark.parametrize("value", [0, -1, MAX_MEMORY_MB + 1, 10**30])
def test_a_memory_limit_out_of_range_is_refused(value: int) -> None:
    with pytest.raises(InvalidRequest, match=str(value)):
        check_memory_mb(value)


@pytest.mark.parametrize("value", [True, 1.5, "256", "256M", None, math.nan])
def test_a_memory_limit_that_is_no_whole_number_is_refused(value: object) -> None:
    with pytest.raises(InvalidRequest, match="whole number of MB"):
        check_memory_mb(value)


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


@pytest.mark.parametrize("name", ["processes", "open_files", "disk_mb", "output_bytes", "fuel"])
@pytest.mark.parametrize("value", [-1, 1 << 80, 10**5000, True, 1.5, "64", math.nan], ids=str_or_kind)
def test_a_wrong_limit_is_refused_by_its_name(name: str, value: object) -> None:
    with pytest.raises(InvalidRequest, match=rf"limits\.{name}"):
        Limits(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, 1e300, 10**400, True, "1"])
def test_a_wrong_cpu_limit_is_refused(value: object) -> None:
    with pytest.raises(InvalidRequest, match=r"limits\.cpu_seconds"):
        Limits(cpu_seconds=value)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "least"), [("processes", 1), ("open_files", 16), ("disk_mb", 1), ("fuel", 1)])
def test_the_least_that_is_taken_is_taken_and_one_less_is_not(name: str, least: int) -> None:
    assert getattr(Limits(**{name: least}), name) == least
    with pytest.raises(InvalidRequest):
        Limits(**{name: least - 1})


def test_no_output_at_all_may_be_kept() -> None:
    assert Limits(output_bytes=0).output_bytes == 0


def test_limits_are_frozen_hashable_and_picklable() -> None:
    limits = Limits(cpu_seconds=1.5, fuel=10)
    with pytest.raises(AttributeError):
        limits.processes = 1  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(limits)) == limits
    assert hash(limits) == hash(Limits(cpu_seconds=1.5, fuel=10))


def test_limits_are_given_by_name_only() -> None:
    with pytest.raises(TypeError):
        Limits(1.0)  # type: ignore[misc]


def test_the_names_of_limits_are_those_of_the_contract() -> None:
    assert " ".join(Limit) == "timeout cpu memory processes disk open_files output fuel gpu_memory"
