"""The languages of the process backend; ``recipe.py`` lists them. A language never starts a program itself."""
