"""Parses ``%%sandbox`` lines into ``CellOptions``, and options into a policy and limits. Pure functions.

Called by the kernel and the magic. ``option_table.py`` lists the options; read it first.
"""
