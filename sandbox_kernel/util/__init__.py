"""What every room of the host uses and that knows none of them. Read ``values.py`` first."""
