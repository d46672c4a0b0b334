import pytest

from sandbox_kernel.guest.wasm.plan import BakePlan, CompilePlan, RunPlan, read_plan


def test_a_document_becomes_the_plan_of_its_task() -> None:
    run = read_plan(
        {
            "task": "run",
            "module": "/m",
            "argv": ["a", "b"],
            "preopens": [{"host": "/h", "guest": "/g", "writable": True}],
            "switches": {"fuel": True, "exceptions": True},
        }
    )
    assert isinstance(run, RunPlan) and run.argv == ["a", "b"]
    assert run.preopens[0].writable and run.switches.fuel and run.switches.exceptions
    assert isinstance(read_plan({"task": "compile", "source": "s", "out": "o"}), CompilePlan)
    assert isinstance(read_plan({"task": "bake", "source": "s", "out": "o", "facts": "f"}), BakePlan)


@pytest.mark.parametrize("document", [{}, {"task": "dance"}, {"task": "run"}, {"task": "run", "module": "m", "odd": 1}])
def test_a_plan_that_is_wrong_is_an_error(document: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="plan"):
        read_plan(document)
