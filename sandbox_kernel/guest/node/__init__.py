"""Node.js inside a jail: single programs, the session worker, and the addon that lets Node.js fork itself.

Read ``node_session.js`` first.
"""
