"""What the project's own checkers (linters, type checkers, compilers) say of the files."""
