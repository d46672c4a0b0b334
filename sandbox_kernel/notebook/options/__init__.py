"""Parses ``%%sandbox`` lines into ``CellOptions``. ``option_table.py`` lists the options; read it first."""
