"""Sessions: state between cells, checkpoints, rollback, undo. One ``Session`` drives one worker inside a jail.

Called by ``box/``. Read ``session.py`` (the public object) first, then ``worker/jailed_worker.py`` and
``cell/run_cell.py``; ``tree/time_travel.py`` has undo, redo and checkout, ``background.py`` what happens between cells.
"""
