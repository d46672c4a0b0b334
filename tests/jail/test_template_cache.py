"""A pool's templates: made in the background, used when they are there, replaced when they are gone, and never needed."""

import os
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sandbox_kernel import ExecRequest, Language, ProcessBackend, ProcessConfig
from sandbox_kernel.backends.probes.capabilities import mechanisms
from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.jail import template as room
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.jail.pool import Pool
from sandbox_kernel.jail.template import Template, TemplateJail, Templates
from sandbox_kernel.jail.walls import Walls, sizes
from sandbox_kernel.limits import Limits
from tests.waiting import until

pytestmark = pytest.mark.usefixtures("nothing_left")


def real_walls(memory_mb: int = 128) -> Walls:
    python = find_python("python3")
    return Walls(python.executable, python.runtime, (), *sizes(Limits(), memory_mb), preload=("site",))


@pytest.fixture
def templates() -> Iterator[Templates]:
    made = Templates()
    yield made
    made.close()


@pytest.fixture
def pool(templates: Templates) -> Iterator[Pool]:
    made = Pool(2, templates=templates)
    yield made
    made.close()


def only(templates: Templates) -> Template:
    (template,) = templates._ready.values()
    return template


@pytest.mark.slow
def test_nobody_waits_for_a_template_and_everybody_uses_one(pool: Pool, templates: Templates) -> None:
    first = pool.take(real_walls())
    assert not isinstance(first, TemplateJail)
    until(lambda: pool.spares() >= 2)
    second = pool.take(real_walls())
    assert isinstance(second, TemplateJail)
    for jail in (first, second):
        jail.destroy()


def test_one_template_serves_every_size(pool: Pool, templates: Templates) -> None:
    for memory_mb in (64, 128):
        pool.warm(real_walls(memory_mb))
    until(lambda: pool.spares() >= 4)
    assert len(templates._ready) == 1
    assert all(isinstance(jail, TemplateJail) for shelf in pool._kinds.values() for jail in shelf.spares)


def test_a_template_that_was_killed_is_replaced_and_so_are_its_spares(pool: Pool, templates: Templates) -> None:
    pool.warm(real_walls())
    until(lambda: pool.spares() >= 2)
    dead = only(templates)
    os.kill(dead.init_pid, signal.SIGKILL)
    dead.wait_dead()
    jail = pool.take(real_walls())
    assert jail.alive
    jail.destroy()
    until(lambda: pool.spares() >= 2)
    assert only(templates) is not dead and only(templates).alive


def test_templates_are_few(templates: Templates) -> None:
    few = Templates(most=1)
    try:
        few.prepare(real_walls())
        old = only(few)
        few.prepare(replace(real_walls(), preload=("site", "random")))
        assert only(few) is not old
        assert not old.alive
    finally:
        few.close()


def test_a_kind_that_nobody_asks_for_is_given_up(templates: Templates) -> None:
    templates.prepare(real_walls())
    templates.keep_only({real_walls(64)})
    assert len(templates._ready) == 1
    templates.keep_only(set())
    assert len(templates._ready) == 0


def test_a_template_that_grew_old_is_replaced(templates: Templates, monkeypatch: pytest.MonkeyPatch) -> None:
    templates.prepare(real_walls())
    old = only(templates)
    templates.prepare(real_walls())
    assert only(templates) is old
    monkeypatch.setattr("sandbox_kernel.jail.template.MAX_AGE_S", -1.0)
    assert templates.fork(real_walls()) is None
    templates.prepare(real_walls())
    assert only(templates) is not old and not old.alive


def test_closing_ends_the_templates_and_none_is_made_afterwards(templates: Templates) -> None:
    templates.prepare(real_walls())
    template = only(templates)
    templates.close()
    assert not template.alive
    templates.prepare(real_walls())
    assert len(templates._ready) == 0


def test_where_no_template_can_be_made_jails_are_started_one_by_one_and_the_report_says_so(
    pool: Pool, templates: Templates, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(walls: Walls) -> Template:
        raise EnforcerFailed("bubblewrap", "namespaces are not nested here")

    monkeypatch.setattr(room, "Template", refuse)
    monkeypatch.setattr(room, "_reasons", [])
    assert room.unavailable() is None
    pool.warm(real_walls())
    until(lambda: pool.spares() >= 2)
    jail = pool.take(real_walls())
    assert not isinstance(jail, TemplateJail) and jail.alive
    jail.destroy()
    assert room.unavailable() == "namespaces are not nested here"
    words = mechanisms(ProcessBackend(ProcessConfig(pool_size=0), enforcer="bubblewrap"))
    assert "namespaces are not nested here" in words.walls


def test_templates_can_be_switched_off(pool: Pool, templates: Templates) -> None:
    pool.warm(replace(real_walls(), templates=False))
    until(lambda: pool.spares() >= 2)
    assert len(templates._ready) == 0
    backend = ProcessBackend(ProcessConfig(templates=False, pool_size=0))
    request = ExecRequest(language=Language.PYTHON, code="1", timeout=1)
    assert not backend.walls(request, backend._recipe(request)).templates


def test_walls_of_another_enforcer_have_no_template(templates: Templates) -> None:
    templates.prepare(replace(real_walls(), enforcer="landlock"))
    assert len(templates._ready) == 0


def test_a_forked_child_of_the_host_leaves_the_templates_to_its_parent(pool: Pool, templates: Templates) -> None:
    pool.warm(real_walls())
    until(lambda: pool.spares() >= 2)
    template = only(templates)
    child = os.fork()
    if child == 0:
        fine = len(templates._ready) == 0 and template.control.fileno() < 0
        template.hold(-1)
        template.retire()
        os._exit(0 if fine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert template.alive and template.current
