"""A folder of the user, copy-on-write; the user applies what programs changed. Read ``overlay_folder.py`` first."""
