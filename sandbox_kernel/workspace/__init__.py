"""Files in and out of a sandbox, always beneath a root."""
