"""Interfaces of agent frameworks, one file each, named after the framework. Each needs the extra of the same name.

Callers: programs that use the framework. None is imported unless it is used.
"""
