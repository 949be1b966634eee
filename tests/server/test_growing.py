"""Characters that came live: what is kept of them until an event holds them."""

from agent.events import Live
from server.growing import Growing


def live(offset: int, text: str) -> Live:
    return Live(session_id="S", type="text", message_id="m", offset=offset, text=text)


def test_what_is_stored_is_forgotten_and_what_is_not_is_kept() -> None:
    growing = Growing(live(0, "abc"))
    for piece in (live(0, "abc"), live(3, "def")):
        growing.add(piece)
    assert growing.trim(4)
    assert (growing.live().offset, growing.live().text) == (4, "ef")
    assert not growing.trim(6)


def test_what_comes_after_a_gap_is_left_to_its_event() -> None:
    growing = Growing(live(0, "abc"))
    for piece in (live(0, "abc"), live(6, "ghi")):
        growing.add(piece)
    assert growing.live().text == "abc"
    assert not growing.trim(9)
    growing.add(live(9, "jkl"))
    assert (growing.live().offset, growing.live().text) == (9, "jkl")
