"""Which commands a message can become, before the model has a say."""

import pytest

from agent.models.routing import commands


def test_every_run_of_words_is_a_candidate_and_nothing_else() -> None:
    found = list(commands("Please read `docs/a.md`, or README!", {"read", "grep"}))
    assert [value for name, value in found if name == "read"] == ["docs/a.md", "README"]
    assert ("grep", "or README") in found
    assert len(found) == len(set(found))
    assert {name for name, _ in found} == {"read", "grep"}


def test_a_command_keeps_its_options_and_loses_its_edges() -> None:
    assert ("shell", "ls -l") in list(commands("Run `ls -l`, please.", {"shell"}))


def test_an_identifier_is_no_path() -> None:
    found = list(commands("Where is Workspace or MAX_SIZE defined, Makefile or setup.py?", {"read"}))
    assert found == [("read", "Makefile"), ("read", "setup.py")]


def test_attachments_and_long_tails_are_not_considered() -> None:
    message = f"Why? <editor_context>\nopen files: a.py\n</editor_context> ```\nb.py\n``` {'word ' * 60} c.py"
    assert list(commands(message, {"read", "grep"})) == [("grep", "Why"), ("grep", "word")]


@pytest.mark.parametrize(
    ("message", "offered"), [("Read a.py", {"edit"}), ("?!", {"read", "grep"}), ("", {"grep"})]
)
def test_nothing_to_choose_from(message: str, offered: set[str]) -> None:
    assert list(commands(message, offered)) == []
