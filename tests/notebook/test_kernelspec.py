"""The kernelspec that the wheel carries and the one that ``install`` writes."""

import contextlib
import json
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from PIL import Image

from sandbox_kernel import InvalidRequest
from sandbox_kernel.cli import main
from sandbox_kernel.notebook.kernelspec import LOGOS, install, kernel_json
from sandbox_kernel.notebook.options.parse_cell import first_defaults

SPEC = Path(__file__).parents[2] / "kernelspec" / "sandbox"


def test_the_shipped_kernelspec_is_the_one_that_install_writes_with_a_plain_python():
    assert json.loads((SPEC / "kernel.json").read_text()) == kernel_json("Sandbox", "python3")


def test_the_three_logos_are_what_jupyter_expects():
    assert ElementTree.parse(SPEC / "logo-svg.svg").getroot().tag.endswith("svg")
    for side in (32, 64):
        assert Image.open(SPEC / f"logo-{side}x{side}.png").size == (side, side)


def test_install_writes_a_spec_that_jupyter_finds(tmp_path, monkeypatch):
    folder = install("my-sandbox", "My Sandbox", str(tmp_path))
    assert folder == tmp_path / "share" / "jupyter" / "kernels" / "my-sandbox"
    spec = json.loads((folder / "kernel.json").read_text())
    assert spec["argv"][0] == sys.executable
    assert spec["display_name"] == "My Sandbox"
    assert all((folder / logo).is_file() for logo in LOGOS)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    from jupyter_client.kernelspec import KernelSpecManager

    assert KernelSpecManager().get_kernel_spec("my-sandbox").interrupt_mode == "message"


def test_install_twice_replaces(tmp_path):
    install("sandbox", "One", str(tmp_path))
    folder = install("sandbox", "Two", str(tmp_path))
    assert json.loads((folder / "kernel.json").read_text())["display_name"] == "Two"


def test_install_for_the_user_goes_to_the_users_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    assert install("sandbox", "Sandbox", None) == tmp_path / "kernels" / "sandbox"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--user", "--prefix", "/x"], "not allowed with"),
        (["--user", "--sys-prefix"], "not allowed with"),
        (["--name", "../evil"], "--name '../evil'"),
        (["--display-name", "  "], "--display-name is empty"),
    ],
)
def test_a_wrong_request_is_refused(words, reason, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    with contextlib.suppress(SystemExit):
        assert main(["install", *words]) == 2
    assert reason in capsys.readouterr().err
    assert not list(tmp_path.rglob("kernel.json"))


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "share").write_text("a file, not a folder")
    with pytest.raises(InvalidRequest, match="try --user or --prefix"):
        install("sandbox", "Sandbox", str(tmp_path))


def test_limits_that_the_environment_names_are_defaults_and_a_wrong_one_is_told(monkeypatch) -> None:
    monkeypatch.setenv("SANDBOX_KERNEL_OPTIONS", "--memory 1G --timeout 2m")
    assert (first_defaults().memory_mb, first_defaults().timeout_s) == (1024, 120.0)
    monkeypatch.setenv("SANDBOX_KERNEL_OPTIONS", "--memory lots")
    with pytest.raises(InvalidRequest, match="--memory 'lots'"):
        first_defaults()


def test_limits_of_a_server_hold_beside_the_options_of_a_kernelspec() -> None:
    both = {"SANDBOX_KERNEL_OPTIONS": "--memory 128M --timeout 5s", "SANDBOX_KERNEL_SPEC_OPTIONS": "--mount /usr:/u"}
    assert first_defaults(both).words() == "--timeout 5s --memory 128M --mount /usr:/u"


def test_install_gives_a_kernel_rights_from_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.toml").write_text("allowNetwork = false\n")
    given = ["--mount", "data:/data:rw", "--allow-net", "example.org", "--policy", "p.toml", "--lines", "locked"]
    given += ["--gpu", "0,1", "--here"]
    assert main(["install", "--prefix", str(tmp_path), *given]) == 0
    spec = json.loads((tmp_path / "share" / "jupyter" / "kernels" / "sandbox" / "kernel.json").read_text())
    assert spec["env"]["SANDBOX_KERNEL_LINES"] == "locked"
    monkeypatch.setenv("SANDBOX_KERNEL_SPEC_OPTIONS", spec["env"]["SANDBOX_KERNEL_SPEC_OPTIONS"])
    line = f"--allow-net example.org --mount {tmp_path}/data:/data:rw --gpu 0,1 --here --policy {tmp_path}/p.toml"
    assert first_defaults().words() == line
    for wrong in (["--mount", "data"], ["--allow-net", "no domain"], ["--policy", "no-such-preset"], ["--gpu", "x"]):
        assert main(["install", "--prefix", str(tmp_path), *wrong]) != 0
