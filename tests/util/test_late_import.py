"""A module that is imported when something of it is used. Each test has a program of its own."""

import subprocess
import sys


def said(code: str, *words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_module_is_imported_at_the_first_use_of_a_name_and_is_the_real_one_from_then_on() -> None:
    code = """
import sys
from sandbox_kernel.util.late_import import import_late
import_late("colorsys")
import colorsys as early
print("__file__" in vars(sys.modules["colorsys"]), early.rgb_to_yiq(0, 0, 0))
import colorsys
print(colorsys is not early, "__file__" in vars(colorsys), early.rgb_to_yiq is colorsys.rgb_to_yiq)
try: early.no_such_name
except AttributeError as error: print(error)
"""
    assert said(code) == [
        "False (0.0, 0.0, 0.0)",
        "True True True",
        "module 'colorsys' has no attribute 'no_such_name'",
    ]


def test_a_package_that_is_imported_late_has_its_submodules_and_is_whole_when_it_is_used() -> None:
    code = """
import sys
from sandbox_kernel.util.late_import import import_late
import_late("xml")
import_late("no_such_module")
import xml.sax.saxutils
print("__file__" in vars(sys.modules["xml"]), xml.sax.saxutils.escape("<"), "no_such_module" in sys.modules)
early = xml
print(early.__all__)
import xml
print("__file__" in vars(xml), xml.sax is early.sax)
"""
    assert said(code) == ["False &lt; False", "['dom', 'parsers', 'sax', 'etree']", "True True"]


def test_a_module_that_is_there_already_stays() -> None:
    code = "from sandbox_kernel.util.late_import import import_late\nimport_late('colorsys')\n"
    assert said(f"import sys, colorsys\n{code}print(sys.modules['colorsys'] is colorsys)") == ["True"]


def test_a_run_from_the_command_line_does_without_an_event_loop() -> None:
    code = """
import sys
from sandbox_kernel.cli import main
assert main(sys.argv[1:]) == 0
print("asyncio" in sys.modules)
"""
    assert said(code, "run", "-q", "-c", "print(1)") == ["1", "False"]


def test_the_protocol_of_the_kernel_does_without_clients_and_managers() -> None:
    code = """
import sys
from sandbox_kernel.util.late_import import import_late
import_late("jupyter_client")
from sandbox_kernel.notebook.protocol.kernel_app import KernelApp
KernelApp()
print(*(name for name in sys.modules if name.startswith(("jupyter_client.man", "jupyter_client.asy"))))
"""
    assert said(code) == [""]
