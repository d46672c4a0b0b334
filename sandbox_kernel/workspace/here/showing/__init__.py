"""Changes as people read them: patches, and the difference of two states."""
