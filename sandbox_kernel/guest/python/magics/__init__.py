"""Magics of a Python session that IPython lacks or does otherwise: those of ipykernel, ``%pip``, and the history.

``shell.py`` adds them to its shell.
"""
