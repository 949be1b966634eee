"""Tables of names, written as the words of a text."""


def names(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())
