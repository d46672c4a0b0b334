from __future__ import annotations

import pytest

from sandbox_kernel.guest.wasm.plan import BakePlan, CompilePlan, RunPlan, read_plan


def test_a_run_plan_with_everything_is_read() -> None:
    plan = read_plan(
        {
            "task": "run",
            "module": "/m",
            "argv": ["a", "b"],
            "env": {"K": "V"},
            "preopens": [{"host": "/h", "guest": "/g", "writable": True}],
            "memory_bytes": 5,
            "fuel": 7,
            "deadline_s": 1.5,
            "clock_ns": 3,
            "seed": 4,
            "switches": {"fuel": True, "exceptions": True},
        }
    )
    assert isinstance(plan, RunPlan)
    assert (plan.argv, plan.env, plan.fuel, plan.deadline_s) == (("a", "b"), (("K", "V"),), 7, 1.5)
    assert plan.preopens[0].writable and plan.switches.fuel and plan.switches.exceptions


def test_each_task_has_its_plan() -> None:
    assert isinstance(read_plan({"task": "compile", "source": "s", "out": "o"}), CompilePlan)
    assert isinstance(read_plan({"task": "bake", "source": "s", "out": "o", "handles": "h"}), BakePlan)


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"task": "dance"},
        {"task": "run", "module": 5},
        {"task": "run", "module": "a\0b"},
        {"task": "run", "module": "m", "argv": "text"},
        {"task": "run", "module": "m", "argv": ["a\0b"]},
        {"task": "run", "module": "m", "env": {"A": "x\0y"}},
        {"task": "run", "module": "m", "fuel": True},
        {"task": "run", "module": "m", "deadline_s": "soon"},
        {"task": "run", "module": "m", "preopens": [5]},
    ],
)
def test_a_plan_that_is_wrong_is_an_error(document: object) -> None:
    with pytest.raises(ValueError, match="plan"):
        read_plan(document)
