"""What the command line shows while a program runs and asks when it has ended: output, progress, offers, corrections.

Used by the modules of ``commands/`` and by ``cli.py``. Read ``echo.py`` first.
"""
