"""Options that several commands share, and the conversion of their values.

Used by the modules of ``commands/``. A wrong value ends the command before anything runs. Read ``grants.py`` first.
"""
