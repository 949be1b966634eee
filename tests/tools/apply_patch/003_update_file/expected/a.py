import os


def one():
    x = 1
    return x + 1


def two():
    x = 2
    return x
