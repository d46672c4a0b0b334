"""Functions that a caller gives to a sandbox: checked before anything runs."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from sandbox_kernel import FunctionLimits, InvalidRequest
from sandbox_kernel.backends.functions.host_function import make_function, make_functions, plain_signature


def search(query: str, *, limit: int = 10) -> list[str]:
    """Find things."""
    return [query] * limit


class Tool:
    def method(self, number: int) -> int:
        return number

    def __call__(self, text: str) -> str:
        return text


def test_arguments_are_bound_by_position_and_name_and_checked() -> None:
    bound = make_function("search", search).bind(["a"], {"limit": 2})
    assert search(*bound.args, **bound.kwargs) == ["a", "a"]


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ([], {}, "search() missing a required argument: 'query'"),
        (["a", 3], {}, "search() too many positional arguments"),
        (["a"], {"more": 1}, "search() got an unexpected keyword argument 'more'"),
        ([1], {}, "search() argument 'query' must be str, got int"),
        (["a"], {"limit": "b"}, "search() argument 'limit' must be int, got str"),
    ],
)
def test_wrong_arguments_are_told_as_python_tells_them(
    args: list[object], kwargs: dict[str, object], message: str
) -> None:
    with pytest.raises(TypeError) as caught:
        make_function("search", search).bind(args, kwargs)
    assert str(caught.value) == message


def test_every_argument_of_a_variadic_function_is_checked() -> None:
    def total(*numbers: int, **named: float) -> float:
        return sum(numbers) + sum(named.values())

    made = make_function("total", total)
    bound = made.bind([1, 2], {"x": 0.5})
    assert total(*bound.args, **bound.kwargs) == 3.5
    with pytest.raises(TypeError, match="argument 'numbers' must be int, got str"):
        made.bind([1, "2"], {})
    with pytest.raises(TypeError, match="argument 'y' must be float, got None"):
        made.bind([], {"y": None})


def test_hints_of_methods_partials_and_callable_objects_are_checked() -> None:
    for call, bad in ((Tool().method, "x"), (Tool(), 1), (functools.partial(search, limit=1), 1)):
        with pytest.raises(TypeError, match="must be"):
            make_function("tool", call).bind([bad], {})


def test_a_function_without_hints_takes_any_value() -> None:
    assert make_function("f", lambda a, b=None: a).bind([{"x": [1]}], {}).args == ({"x": [1]},)


def no_hint(path: Path) -> None: ...


def late_hint(item: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ([search], "dict of names"),
        ({"search": 3}, "must be a function"),
        ({"my search": search}, "no name for a function"),
        ({3: search}, "no name for a function"),
        ({"class": search}, "cannot be used inside"),
        ({"_private": search}, "cannot be used inside"),
        ({"HostError": search}, "cannot be used inside"),
        ({"f": no_hint}, "parameter 'path' of f: Path cannot be sent"),
        ({"f": late_hint}, "cannot be resolved"),
        ({f"f{number}": search for number in range(501)}, "at most 500"),
    ],
)
def test_functions_that_cannot_be_called_from_inside_are_refused(functions: object, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        make_functions(functions)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [{"calls": 0}, {"calls": 1.5}, {"bytes": 0}, {"seconds": 0}, {"seconds": "x"}, {"seconds": float("nan")}]
)
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match=rf"function_limits\.{next(iter(wrong))}"):
        FunctionLimits(**wrong)  # type: ignore[arg-type]


def test_functions_of_a_session_are_added_to_those_of_the_sandbox() -> None:
    before = make_functions({"search": search}, FunctionLimits(calls=5))
    both = make_functions({"tool": Tool()}, before=before)
    assert both is not None
    assert (list(both.functions), both.limits.calls) == (["search", "tool"], 5)
    assert make_functions({}) is None


def test_the_listing_shows_signature_and_documentation() -> None:
    def odd(size: int = 3, where: object = object()) -> None: ...

    made = make_functions({"search": search, "odd": odd})
    assert made is not None
    assert made.listing() == [
        ["search", "(query: str, *, limit: int = 10) -> list[str]", "Find things."],
        ["odd", "(size: int = 3, where: object = ...) -> None", ""],
    ]
    assert plain_signature(made.functions["search"]).startswith("(query")
