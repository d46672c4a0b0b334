"""The height of a frame, which the frame itself decides."""

import pytest
from playwright.sync_api import expect

from tests.browser.lab_page import LabPage, code_cell, notebook_of

pytestmark = pytest.mark.browser

#: Asks for another height with each picture.
JUMPS = """from IPython.display import HTML; HTML('''<b id=jumps>x</b><script>
  let isHigh = false;
  setInterval(() => { isHigh = !isHigh; parent.postMessage({ type: 'height', height: isHigh ? 300 : 24 }, '*'); }, 15);
</script>''')"""
#: Where the next cell stands in 60 pictures of the page.
PLACES = """async (cell) => {
  const tops = [];
  for (let count = 0; count < 60; count += 1) {
    await new Promise(requestAnimationFrame);
    tops.push(Math.round(cell.getBoundingClientRect().top));
  }
  return tops.filter((top, at) => at > 0 && top !== tops[at - 1]).length;
}"""


def test_a_frame_whose_content_jumps_hardly_moves_the_next_cell(lab: LabPage) -> None:
    cells = [code_cell(source) for source in (" ".join(JUMPS.split()), "# here")]
    lab.server.write_notebook("jumps.ipynb", notebook_of(*cells, kernel="sandbox"))
    lab.open("jumps.ipynb")
    lab.run_all()
    expect(lab.output(0).frame_locator("iframe").frame_locator("iframe").locator("#jumps")).to_be_visible()
    assert lab.cell(1).evaluate(PLACES) <= 4
