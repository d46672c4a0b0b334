"""Random walks through a tree of states, with cells and whole sandboxes that die, against a model of plain values."""

from __future__ import annotations

import contextlib
import os
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
from sandbox_kernel.session.opening.open_session import open_session

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
            self.session.close()

    def go(self, node: int) -> None:
        self.present = node
        while (parent := self.nodes[node].parent) is not None:
            self.nodes[parent].last = node
            node = parent

    @rule(number=st.integers(0, 99), fails=st.booleans())
    def run(self, number: int, fails: bool) -> None:
        values = [*self.nodes[self.present].values, number]
        code = f"x = [*globals().get('x', []), {number}]\nopen('f', 'w').write(repr(x))"
        result = self.session.run(f"{code}\n1 / 0" if fails else code)
        assert result.ok is not fails, result
        made = max(self.nodes) + 1
        self.nodes[made] = Model(values, self.present)
        self.go(made)

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
        living = {node.id for node in self.session.history() if node.alive}
        if target in living:
            self.session.undo(steps)
            assert target is not None
            self.go(target)
        else:
            with pytest.raises(SessionError):
                self.session.undo(steps)

    @rule()
    def redo(self) -> None:
        ahead = self.nodes[self.present].last
        if ahead is None:
            with pytest.raises(SessionError, match="nothing to redo"):
                self.session.redo()
        else:
            self.session.redo()
            self.go(ahead)

    @rule(data=st.data())
    def checkout(self, data: st.DataObject) -> None:
        target = data.draw(st.sampled_from(sorted(self.nodes)))
        self.session.checkout(target)
        self.go(target)

    @rule(name=st.sampled_from(["a", "b"]))
    def name(self, name: str) -> None:
        assert self.session.checkpoint(name).id == self.present
        self.names[name] = self.present

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def checkout_by_name(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.names)))
        if name in {node.name for node in self.session.history()}:
            self.session.checkout(name)
            self.go(self.names[name])

    @precondition(lambda self: len(self.nodes) > 3)
    @rule()
    def lose_everything(self) -> None:
        worker = self.session._supervisor.live
        assert worker is not None
        self.session._supervisor.kill()
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
        assert len(tree.living()) <= 9


@pytest.mark.timeout(PATIENCE_S)
def test_a_walk_with_deaths_is_always_where_the_model_is() -> None:
    run_state_machine_as_test(
        Walk,
        settings=settings(
            max_examples=WALKS, stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
