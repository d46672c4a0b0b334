"""The two doors to a notebook: the Sandbox kernel and the ``%%sandbox`` magic, over one parser and one set of boxes."""
