"""What all kinds of jail share: walls as values, jobs, the base class, the messages to the gate inside.

Read ``walls.py`` and ``jail.py`` first.
"""
