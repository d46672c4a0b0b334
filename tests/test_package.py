"""Everything is imported from ``sandbox_kernel``, and only when it is used."""

import subprocess
import sys

import pytest

import sandbox_kernel


def test_every_public_name_is_there_and_has_one_home():
    assert set(sandbox_kernel._HOME_OF) | {"__version__"} == set(sandbox_kernel.__all__)
    for name in sandbox_kernel.__all__:
        assert getattr(sandbox_kernel, name) is not None
        assert name in dir(sandbox_kernel)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Nope'"):
        _ = sandbox_kernel.Nope


@pytest.mark.parametrize(
    ("module", "late"),
    [
        ("sandbox_kernel", ["sandbox_kernel.backends", "ipywidgets", "wasmtime", "nh3"]),
        # Its first sandbox is what a kernel starts with; all else is imported while that starts.
        ("sandbox_kernel.notebook.kernel", ["zmq", "IPython", "ipywidgets", "wasmtime", "nh3"]),
    ],
)
def test_importing_the_package_or_the_kernel_class_loads_nothing_that_can_wait(module, late):
    code = (
        f"import sys, {module}\n"
        f"loaded = [name for name in sys.modules if name.startswith({tuple(late)!r})]\n"
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
