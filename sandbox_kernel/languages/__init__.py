"""The languages of the process backend; ``registry.py`` lists them. A language never starts a program itself."""
