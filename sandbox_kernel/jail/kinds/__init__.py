"""The kinds of jail: bubblewrap, a fork of a template, and a jail without namespaces (Landlock).

Read ``bubblewrap_jail.py`` first.
"""
