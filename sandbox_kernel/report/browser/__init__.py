"""Lines of the report on the user's browser: frames in a page of ours try to reach listeners of ours.

``sandbox-kernel report --page`` and the report's widget call ``measure_page``.
"""
