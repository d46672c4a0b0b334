"""Random walks through a tree of states, with cells and whole sandboxes that die, against a model of plain values."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.errors import SessionError
from sandbox_kernel.model import NoteKind
from sandbox_kernel.session.open_session import open_session
from sandbox_kernel.session.worker.jailed_worker import MOST_WAITING

#: How many walks, and how long each is; 10 000 operations are 100 walks of 100.
WALKS = int(os.environ.get("SANDBOX_KERNEL_TREE_WALKS", "6"))
STEPS = int(os.environ.get("SANDBOX_KERNEL_TREE_STEPS", "40"))
#: Seconds for all of them; a mark counts more than ``--timeout``, and ``make tree-walks`` takes its time.
PATIENCE_S = 600 if WALKS * STEPS <= 1000 else 0


@dataclass
class Model:
    """A node as the model has it: its values, where it came from, where redo goes."""

    values: list[int]
    parent: int | None
    last: int | None = None
    names: set[str] = field(default_factory=set)


def cell(number: int) -> str:
    return f"x = [*globals().get('x', []), {number}]\nopen('f', 'w').write(repr(x))"


class Walk(RuleBasedStateMachine):
    """Cells append to a list and write it to a file; every move has to bring both back."""

    @initialize()
    def begin(self) -> None:
        self.session = open_session(ProcessBackend(), checkpoints=2)
        self.nodes = {0: Model([], None)}
        self.present = 0
        self.names: dict[str, int] = {}
        self.lost = False

    def teardown(self) -> None:
        if hasattr(self, "session"):
            # Asked for its history, a session ends the checkpoints that are too many.
            living = self.living()
            self.session.close()
            assert len(living) <= 9

    def go(self, node: int) -> None:
        self.present = node
        while (parent := self.nodes[node].parent) is not None:
            self.nodes[parent].last = node
            node = parent

    def grow(self, number: int) -> int:
        made = max(self.nodes) + 1
        self.nodes[made] = Model([*self.nodes[self.present].values, number], self.present)
        return made

    def living(self) -> set[int]:
        return {node.id for node in self.session.history() if node.alive}

    @rule(number=st.integers(0, 99), fails=st.booleans())
    def run(self, number: int, fails: bool) -> None:
        result = self.session.run(f"{cell(number)}\n1 / 0" if fails else cell(number))
        assert result.ok is not fails, result
        self.go(self.grow(number))

    @rule(numbers=st.lists(st.integers(0, 99), min_size=1, max_size=3), keeps=st.booleans(), data=st.data())
    def explore(self, numbers: list[int], keeps: bool, data: st.DataObject) -> None:
        base, made = self.present, []
        tried = self.session.explore([cell(number) for number in numbers])
        for number in numbers:
            made.append(self.grow(number))
            self.go(made[-1])
            self.go(base)
        assert list(tried.nodes) == made
        if keeps:
            chosen = data.draw(st.integers(0, len(numbers) - 1))
            tried.keep(chosen)
            self.go(made[chosen])
        else:
            tried.discard()

    @rule(number=st.integers(0, 99), data=st.data())
    def kill_a_state(self, number: int, data: st.DataObject) -> None:
        worker = self.session._supervisor.live
        others = self.living() - {self.present}
        if worker is None or not others:
            return
        victim = data.draw(st.sampled_from(sorted(others)))
        held = worker.tree.records[victim].pid
        assert held
        # The cell may be run again, when that process is gone, or in another jail, where it is the worker itself.
        kill = f"import os\ntry: os.getpid() == {held} or os.kill({held}, 9)\nexcept ProcessLookupError: pass"
        kill += f"\n{cell(number)}"
        assert self.session.run(kill).ok
        self.go(self.grow(number))
        while victim in self.living():
            pass  # a killed process takes a moment to end

    @rule()
    def die(self) -> None:
        result = self.session.run("x = 'wrong'; open('f', 'w').write('wrong')\nimport os; os._exit(7)")
        assert result.rolled_back, result

    @precondition(lambda self: self.present != 0)
    @rule(steps=st.integers(1, 2))
    def undo(self, steps: int) -> None:
        target: int | None = self.present
        for _ in range(steps):
            target = self.nodes[target].parent if target is not None else None
        if target in self.living():
            self.session.undo(steps)
            assert target is not None
            self.go(target)
        else:
            with pytest.raises(SessionError):
                self.session.undo(steps)

    def reach(self, target: int, move: Callable[[], object]) -> None:
        """Make a move, which is possible if the state or one before it lives."""
        living, at = self.living(), target
        while at not in living and (parent := self.nodes[at].parent) is not None:
            at = parent
        if at in living:
            move()
            self.go(target)
        else:
            with pytest.raises(SessionError, match="no state before it lives either"):
                move()

    @rule()
    def redo(self) -> None:
        ahead = self.nodes[self.present].last
        if ahead is None:
            with pytest.raises(SessionError, match="nothing to redo"):
                self.session.redo()
        else:
            self.reach(ahead, self.session.redo)

    @rule(data=st.data())
    def checkout(self, data: st.DataObject) -> None:
        target = data.draw(st.sampled_from(sorted(self.nodes)))
        self.reach(target, lambda: self.session.checkout(target))

    @rule(name=st.sampled_from(["a", "b"]))
    def name(self, name: str) -> None:
        assert self.session.checkpoint(name).id == self.present
        self.names[name] = self.present

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def checkout_by_name(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.names)))
        if name in {node.name for node in self.session.history()}:
            self.reach(self.names[name], lambda: self.session.checkout(name))

    @precondition(lambda self: len(self.nodes) > 3)
    @rule()
    def lose_everything(self) -> None:
        worker = self.session._supervisor.live
        assert worker is not None
        self.session._supervisor.live.jail.kill()  # type: ignore[union-attr]
        worker.jail.wait_dead()  # a short cell would otherwise end before its worker does
        with contextlib.suppress(SessionError):  # or the cell is the first to notice, and says so in its result
            result = self.session.run("pass")
            assert any(note.kind is NoteKind.STATE_LOST for note in result.notes), result
        self.go(0)

    @invariant()
    def the_state_is_that_of_the_model(self) -> None:
        if not hasattr(self, "session"):
            return
        assert self.session._supervisor.live is not None
        tree = self.session._supervisor.live.tree
        assert tree.present == self.present
        assert {node: record.parent for node, record in tree.records.items()} == {
            node: model.parent for node, model in self.nodes.items()
        }
        values = self.nodes[self.present].values
        if values:
            assert self.session.read_file("f").decode() == repr(values)
        assert len(tree.living()) <= 9 + MOST_WAITING


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.slow
def test_a_walk_with_deaths_is_always_where_the_model_is() -> None:
    run_state_machine_as_test(
        Walk,
        settings=settings(
            max_examples=WALKS, stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
