"""What every room stands on and that knows none of them: quick value classes, text made safe to show, the
import path of our own processes.

Imported by every room of the host. Read ``values.py`` first.
"""
