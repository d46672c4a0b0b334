"""Frames in real pages: the galleries, attempts to get out, and the lines of the report on the page."""
