"""Which files a kernel gets: packages below the user's home are shown and found, the home itself is not."""

import os
import shutil
import subprocess
import sys

import pytest

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.wrapped.needed_files import needed_files
from tests.conftest import need


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home folder with a secret in it."""
    place = tmp_path / "home"
    place.mkdir()
    (place / "secret.txt").write_text("secret")
    monkeypatch.setenv("HOME", str(place))
    return place


def program(path, text):
    """Write a program in a folder like an installation's: ``bin`` beside ``lib``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent.parent / "lib").mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def is_shown(path, found):
    """Whether a path lies in something that is shown."""
    return any(str(path) == grant.target or str(path).startswith(f"{grant.target}/") for grant in found.grants)


@pytest.mark.slow
def test_julias_depot_is_read_only_and_one_of_its_own_is_before_it(home, spec, wrap, start):
    depot = home / ".julia"
    (depot / "packages" / "IJulia" / "x" / "src").mkdir(parents=True)
    script = depot / "packages" / "IJulia" / "x" / "src" / "kernel.jl"
    script.write_text("# Julia would read this\n")
    # A stand-in with Julia's name and places, which starts another kernel: there is no Julia in the registries.
    stand_in = f'#!/bin/sh\nexec {sys.executable} -m ipykernel_launcher -f "$3"\n'
    julia = program(depot / "juliaup" / "julia-1.11.5" / "bin" / "julia", stand_in)
    env = {"PYTHON": f"{sys.prefix}:{sys.base_prefix}"}
    spec("julia-1.11", [julia, "-i", str(script), "{connection_file}"], language="julia", env=env)
    kernel = start(wrap("julia-1.11"))
    look = f"""
import os
own, depot, rest = os.environ['JULIA_DEPOT_PATH'].split(':')
os.makedirs(own)
print(depot, repr(rest), os.path.exists({str(script)!r}), os.access(depot, os.W_OK))
print(os.path.exists({str(home / "secret.txt")!r}), os.listdir({str(home)!r}))
"""
    assert kernel.text(look) == f"{depot} '' True False\nFalse ['.julia']\n"


def test_a_depot_that_the_kernelspec_names_is_kept(home, tmp_path):
    julia = program(tmp_path / "julia" / "bin" / "julia", "")
    (tmp_path / "depot").mkdir()
    found = needed_files([julia], {"JULIA_DEPOT_PATH": f"{tmp_path}/depot"}, "")
    assert is_shown(tmp_path / "depot" / "packages", found)
    assert found.env == {"JULIA_DEPOT_PATH": f"${{XDG_CACHE_HOME}}/julia:{tmp_path}/depot"}


def test_an_environment_of_conda_is_shown_whole_and_its_own_r_is_asked(home):
    prefix = home / "miniconda3" / "envs" / "stats"
    (prefix / "lib" / "R" / "library").mkdir(parents=True)
    (prefix / "conda-meta").mkdir()
    program(prefix / "bin" / "Rscript", f"#!/bin/sh\necho {prefix}/lib/R\necho {prefix}/lib/R/library\n")
    found = needed_files([program(prefix / "bin" / "R", "#!/bin/sh\n"), "--slave"], {}, "")
    assert found.program == f"{prefix}/bin/R"
    assert is_shown(prefix / "lib" / "libzmq.so", found)
    assert found.env == {"R_LIBS": f"{prefix}/lib/R/library"}
    assert not is_shown(home / "secret.txt", found)
    assert not is_shown(home / "miniconda3" / "pkgs", found)


def test_the_users_library_of_r_is_shown_and_named(home):
    need(shutil.which("Rscript"), "R is not installed")
    library = home / "library"
    library.mkdir()
    found = needed_files([shutil.which("R")], {"R_LIBS_USER": str(library)}, "")
    assert is_shown(library, found)
    assert str(library) in found.env["R_LIBS"].split(":")


def test_packages_that_a_user_installed_for_themselves_are_shown_and_found(home):
    python = shutil.which("python3", path="/usr/bin")
    need(python, "the system has no Python")
    ask = [python, "-c", "import site; print(site.getusersitepackages())"]
    packages = subprocess.check_output(ask, text=True).strip()
    os.makedirs(packages)
    found = needed_files([python], {}, "")
    assert is_shown(packages, found)
    assert found.env == {"PYTHONUSERBASE": f"{home}/.local"}


def test_a_program_that_is_not_there_is_named_with_what_to_do():
    with pytest.raises(BackendUnavailable, match=r"'/nowhere/R' was not found; install it, or correct the argv"):
        needed_files(["/nowhere/R"], {}, "")


@pytest.mark.slow
def test_an_environment_that_is_a_link_in_a_shown_project_is_no_obstacle(start, tmp_path, monkeypatch):
    project = tmp_path / "project"
    project.mkdir()
    (project / "mine.py").write_text("value = 42\n")
    (project / ".venv").symlink_to(sys.prefix)
    monkeypatch.setenv("PYTHONPATH", f"{project}{os.pathsep}{os.environ['PYTHONPATH']}")
    # The launcher and the kernel both run with this Python.
    python = f"{project}/.venv/bin/python"
    subprocess.run([python, "-m", "sandbox_kernel", "wrap", "python3", "--name", "linked"], check=True)
    kernel = start("linked")
    assert kernel.text(f"import sys; sys.path.append({str(project)!r}); import mine; print(mine.value)") == "42\n"
