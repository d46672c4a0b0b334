"""Work folders: copies files into and out of sandboxes and finds changes, always beneath a root descriptor."""
