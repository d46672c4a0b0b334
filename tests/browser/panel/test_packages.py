"""``%pip install`` in the page: one press installs, or copies the line for a terminal."""

import json
import shutil

import pytest
from playwright.sync_api import expect

from tests.browser.lab_page import LabPage, code_cell, notebook_of
from tests.browser.loopback_kernel import HOST
from tests.browser.panel.test_side_panel import choose, lab_with_panel, panel, run
from tests.package_index import PACKAGE, package_index

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
__all__ = ["lab_with_panel"]


def test_a_package_is_one_press_away_and_its_line_can_be_copied(lab_with_panel: LabPage) -> None:
    lab, kernels = lab_with_panel, lab_with_panel.server.folder.parent / "share/kernels"
    with package_index(address=HOST) as (_, port, asked):
        shutil.copytree(kernels / "sandbox-ask", kernels / "sandbox-index", dirs_exist_ok=True)
        spec = json.loads((kernels / "sandbox-ask/kernel.json").read_text())
        spec["env"] |= {
            "PIP_INDEX_URL": f"http://{HOST}:{port}/simple", "PIP_EXTRA_INDEX_URL": "", "PIP_CONFIG_FILE": "/dev/null"
        }  # fmt: skip
        (kernels / "sandbox-index/kernel.json").write_text(json.dumps(spec))
        cell = code_cell(f"%pip install {PACKAGE}\nimport {PACKAGE}\nprint({PACKAGE}.answer)")
        lab.server.write_notebook("packages.ipynb", notebook_of(cell, kernel="sandbox-index"))
        lab.page.evaluate("() => window.jupyterapp.serviceManager.kernelspecs.refreshSpecs()")
        lab.open("packages.ipynb")
        run(lab, 0)
        offers = lab.output(0).get_by_role("group", name=PACKAGE)
        expect(offers).to_contain_text(f"The cell needs packages: {PACKAGE}.")
        lab.screenshot("packages-offered")
        lab.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        copy = offers.get_by_role("button", name="Copy the line for my terminal")
        expect(copy).to_be_enabled()
        copy.click()
        expect(lab.output(0).get_by_role("status")).to_have_text(f"Copied: pip install {PACKAGE}")
        assert lab.page.evaluate("() => navigator.clipboard.readText()") == f"pip install {PACKAGE}"
        assert asked == []
        install = offers.get_by_role("button", name="Install for this notebook")
        expect(install).to_be_enabled()
        install.click()
        expect(lab.output(0)).to_contain_text(f"already there: {PACKAGE}", timeout=60_000)
        expect(lab.output(0)).to_contain_text("42")
        assert any(path.endswith(".whl") for path in asked)
        choose(lab, "access")
        expect(panel(lab)).to_contain_text(f"{PACKAGE} 1.0")
        lab.screenshot("packages-installed")
