"""The style sheet that pandas and polars add to every table. It only aligns text, so it is removed without a note."""

from __future__ import annotations

import re

TABLE_STYLE = re.compile(r"<style(?: scoped)?>\s*\.dataframe [^<@]{0,800}</style>")
