"""Interpreters of the host: found or said to be missing, with the way to get them."""

from collections.abc import Callable

import pytest

from sandbox_kernel import BackendUnavailable, Sandbox, Status
from sandbox_kernel.backends.process import ProcessConfig
from sandbox_kernel.languages.interpreters import find_program
from sandbox_kernel.languages.recipe import MODULES, availability
from sandbox_kernel.model import Language

SMALL = (Language.RUBY, Language.LUA, Language.PERL, Language.PHP, Language.R, Language.GO)


@pytest.fixture
def empty_host(monkeypatch: pytest.MonkeyPatch) -> object:
    """A machine with no program on its PATH."""
    monkeypatch.setattr("sandbox_kernel.languages.interpreters.shutil.which", lambda name: None)
    for cache in (find_program, availability):
        cache.cache_clear()
    yield
    for cache in (find_program, availability):
        cache.cache_clear()


@pytest.mark.usefixtures("empty_host")
@pytest.mark.parametrize("language", SMALL)
def test_what_a_host_lacks_is_said_with_the_command_that_gets_it(box: Sandbox, language: Language) -> None:
    found = availability(ProcessConfig(), language)
    assert not found.available
    assert "was not found on PATH" in found.reason
    assert found.remedy.startswith("apt install ")
    with pytest.raises(BackendUnavailable, match=f"{language} cannot run here: .*; apt install"):
        box.run("1", language)


def test_every_language_but_wasm_has_a_recipe() -> None:
    assert set(MODULES) == set(Language) - {Language.WASM}


@pytest.mark.parametrize("language", sorted(MODULES))
@pytest.mark.one_case
def test_every_language_is_available_with_version_and_origin_or_says_why_not(language: Language) -> None:
    found = availability(ProcessConfig(), language)
    if found.available:
        assert found.version
        assert found.origin
    else:
        assert found.reason
        assert found.remedy


def test_a_php_cell_may_begin_with_its_tag(box: Sandbox, needs: Callable[[str], None]) -> None:
    needs("php")
    assert box.run("text <?php echo 5;", "php").stdout == "text 5"


def test_a_go_cell_may_have_its_package_clause(box: Sandbox, needs: Callable[[str], None]) -> None:
    needs("go")
    result = box.run("package main\nfunc main() { println(5) }", "go")
    assert (result.status, result.stderr) == (Status.OK, "5\n")


def test_values_of_r_are_printed_and_caught_errors_are_not_told(box: Sandbox, needs: Callable[[str], None]) -> None:
    needs("r")
    result = box.run("5 + 5\ninvisible(6)\ntry(stop('quiet'), silent = TRUE)\nls()", "r")
    assert (result.status, result.stdout) == (Status.OK, "[1] 10\ncharacter(0)\n"), result.stderr


def test_an_error_inside_a_function_of_r_names_both_lines(box: Sandbox, needs: Callable[[str], None]) -> None:
    needs("r")
    result = box.run("f <- function() {\n  stop('x')\n}\nf()", "r")
    assert result.stderr == "Error in f() : x\n    at /cell/cell.R:2\n    at /cell/cell.R:4\n"
