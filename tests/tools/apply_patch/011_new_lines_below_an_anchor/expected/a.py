import os


def one():
    x = 1
    return x


def two():
    """Two."""
    x = 2
    return x
