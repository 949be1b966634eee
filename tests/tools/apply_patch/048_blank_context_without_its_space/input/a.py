import os


def one():
    x = 1
    return x


def two():
    x = 2
    return x
