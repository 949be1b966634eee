"""Notebooks: read as cells, edited as cells, and in the file only what was edited changes."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.calling import call, workspace
from tools.apply_patch import ApplyPatch
from tools.applying import EditError, NoMatch
from tools.edit import Edit
from tools.notebook import Notebook
from tools.read import Read
from tools.stale import Stale
from tools.workspace import Workspace

PNG = "iVBORw0KGgo="
CELLS: list[dict[str, Any]] = [
    {"cell_type": "markdown", "id": "a1", "metadata": {}, "source": ["# Title\n", "text with “quotes”"]},
    {
        "cell_type": "code",
        "execution_count": 3,
        "id": "b2",
        "metadata": {"tags": ["x"]},
        "outputs": [
            {"name": "stdout", "output_type": "stream", "text": ["1\n", "\u001b[31m2\u001b[0m\n"]},
            {
                "output_type": "display_data",
                "data": {"image/png": PNG, "text/plain": ["<Figure>"]},
                "metadata": {},
            },
            {"output_type": "error", "ename": "ValueError", "evalue": "no", "traceback": ["…"]},
        ],
        "source": ["x = 1\n", "print('a\\n')\n"],
    },
    {"cell_type": "code", "execution_count": None, "id": "c3", "metadata": {}, "outputs": [], "source": []},
    {"cell_type": "raw", "id": "d4", "metadata": {}, "source": "one text\nof two lines"},
]
VIEW = (
    "# %% cell 1 [markdown]\n# Title\ntext with “quotes”\n# %% cell 2 [code]\nx = 1\nprint('a\\n')\n\n"
    "# %% cell 3 [code]\n# %% cell 4 [raw]\none text\nof two lines\n"
)


def dumped(cells: list[dict[str, Any]], **options: Any) -> bytes:
    book = {
        "cells": cells,
        "metadata": {"kernelspec": {"name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return (json.dumps(book, **{"indent": 1, "ensure_ascii": False, **options}) + "\n").encode()


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    (tmp_path / "work").mkdir()
    made = workspace(tmp_path / "work")
    (made.root / "n.ipynb").write_bytes(dumped(CELLS))
    return made


async def edit(place: Workspace, *edits: dict[str, str]):
    await call(Read(), place, path="n.ipynb")
    return await call(Edit(), place, path="n.ipynb", edits=list(edits))


def cells(place: Workspace) -> list[dict[str, Any]]:
    return json.loads((place.root / "n.ipynb").read_text("utf-8"))["cells"]


async def test_cells_are_read_with_numbers_and_outputs_without(place: Workspace) -> None:
    result = await call(Read(), place, path="n.ipynb")
    assert result.text == (
        "1\t# %% cell 1 [markdown]\n2\t# Title\n3\ttext with “quotes”\n"
        "4\t# %% cell 2 [code]\n5\tx = 1\n6\tprint('a\\n')\n7\t\n"
        "out\t1\nout\t2\nout\t<Figure>\nout\t[image/png, 8 bytes, not shown]\nout\tValueError: no\n"
        "8\t# %% cell 3 [code]\n9\t# %% cell 4 [raw]\n10\tone text\n11\tof two lines\n"
        "(a notebook as cells: edit it in this form, without the lines marked out)"
    )
    part = await call(Read(), place, path="n.ipynb", start=7, end=8)
    assert part.text.startswith("7\t\nout\t1\n") and "lines 7-8 of 11" in part.text


async def test_an_edit_of_a_cell_changes_its_source_and_nothing_else(place: Workspace) -> None:
    before = (place.root / "n.ipynb").read_bytes()
    result = await edit(place, {"old": "x = 1", "new": 'x = "é"\ny = 2'})
    after = (place.root / "n.ipynb").read_bytes()
    assert after == before.replace(b'    "x = 1\\n",\n', '    "x = \\"é\\"\\n",\n    "y = 2\\n",\n'.encode())
    assert "+y = 2" in result.text
    (change,) = result.changes
    assert (change.before, change.after) == (before, after)
    await call(Edit(), place, path="n.ipynb", edits=[{"old": "of two lines", "new": "of 2 lines"}])
    assert cells(place)[3]["source"] == "one text\nof 2 lines"


async def test_an_empty_cell_is_filled_and_a_cell_emptied(place: Workspace) -> None:
    await edit(place, {"old": "# %% cell 3 [code]\n", "new": "# %% cell 3 [code]\nz = 3\n"})
    await edit(place, {"old": "one text\nof two lines\n", "new": ""})
    assert [cell["source"] for cell in cells(place)[2:]] == [["z = 3"], ""]


async def test_cells_are_added_moved_and_deleted_by_their_headings(place: Workspace) -> None:
    new = "# %% cell new [markdown]\n## Part\n\nmore\n# %% cell 3 [code]\n"
    await edit(place, {"old": "# %% cell 3 [code]\n", "new": new})
    found = cells(place)
    assert [cell["cell_type"] for cell in found] == ["markdown", "code", "markdown", "code", "raw"]
    assert found[2]["source"] == ["## Part\n", "\n", "more"] and len(found[2]["id"]) == 8
    assert [found[0], found[1], found[3], found[4]] == CELLS
    assert (place.root / "n.ipynb").read_bytes() == dumped(found)
    await edit(place, {"old": "# %% cell 3 [markdown]\n## Part\n\nmore\n", "new": ""})
    assert (place.root / "n.ipynb").read_bytes() == dumped(CELLS)
    every = Notebook.of("n.ipynb", dumped(CELLS))
    assert every is not None
    third, fourth = "# %% cell 3 [code]\n", "# %% cell 4 [raw]\none text\nof two lines\n"
    await edit(place, {"old": third + fourth, "new": fourth + third})
    assert cells(place) == [CELLS[0], CELLS[1], CELLS[3], CELLS[2]]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# %% cell 2 [code]", "# %% cell 1 [code]"),
        ("# %% cell 2 [code]", "# %% cell 9 [code]"),
        ("# %% cell 2 [code]", "# %% cell 2 [markdown]"),
        ("# %% cell 1 [markdown]\n", ""),
    ],
)
async def test_headings_that_fit_no_cell_are_refused(place: Workspace, old: str, new: str) -> None:
    with pytest.raises(EditError):
        await edit(place, {"old": old, "new": new})
    assert (place.root / "n.ipynb").read_bytes() == dumped(CELLS)


async def test_an_edit_of_the_json_itself_is_taken_where_it_is_exact(place: Workspace) -> None:
    await edit(place, {"old": '"name": "python3"', "new": '"name": "python4"'})
    assert json.loads((place.root / "n.ipynb").read_text())["metadata"]["kernelspec"]["name"] == "python4"
    with pytest.raises(NoMatch, match="was not found"):
        await edit(place, {"old": '"name":  "python4"', "new": "x"})


async def test_a_patch_speaks_of_cells_too(place: Workspace) -> None:
    await call(Read(), place, path="n.ipynb")
    await call(
        ApplyPatch(),
        place,
        patch="*** Begin Patch\n*** Update File: n.ipynb\n@@ # %% cell 2 [code]\n-x = 1\n+x = 2\n"
        "*** End Patch\n",
    )
    assert cells(place)[1]["source"] == ["x = 2\n", "print('a\\n')\n"]


async def test_a_stale_edit_shows_cells(place: Workspace) -> None:
    await call(Read(), place, path="n.ipynb")
    changed = [*CELLS]
    changed[1] = {**CELLS[1], "source": ["x = 1\n", "# the user's\n"]}
    (place.root / "n.ipynb").write_bytes(dumped(changed))
    with pytest.raises(Stale, match="# the user's"):
        await call(Edit(), place, path="n.ipynb", edits=[{"old": "x = 1\nprint", "new": "y"}])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"not json",
        b"[" * 100_000,
        b'{"cells": 3, "nbformat": 4, "nbformat_minor": 5}',
        b'{"cells": [{"cell_type": "code"}], "nbformat": 4, "nbformat_minor": 5}',
        b'{"cells": [], "nbformat": 3, "nbformat_minor": 0}',
        b'{"cells": [{"cell_type": "code", "source": "a\\u0000b"}], "nbformat": 4, "nbformat_minor": 5}',
        b'{"cells": [{"cell_type": "code", "source": "\\ud800"}], "nbformat": 4, "nbformat_minor": 5}',
        b'{"cells": [{"cell_type": "raw", "source": "# %% cell 1 [raw]"}],"nbformat":4,"nbformat_minor":5}',
        b'{"cells": [{"cell_type": "code", "source": [1]}], "nbformat": 4, "nbformat_minor": 5}',
        b'{"cells": [{"cell_type": ["code"], "source": "x"}], "nbformat": 4, "nbformat_minor": 5}',
        b'{"cells": [{"cell_type": "code", "source": "x"}',
    ],
)
async def test_what_cannot_be_cells_is_plain_text(place: Workspace, data: bytes) -> None:
    (place.root / "n.ipynb").write_bytes(data)
    assert "as cells" not in (await call(Read(), place, path="n.ipynb")).text


async def test_long_outputs_are_cut(place: Workspace) -> None:
    book = [{**CELLS[1], "outputs": [{"output_type": "stream", "text": [f"{n}\n" for n in range(5000)]}]}]
    (place.root / "n.ipynb").write_bytes(dumped(book))
    text = (await call(Read(), place, path="n.ipynb")).text
    assert "out\t19\nout\t… 4980 more lines of output" in text


SOURCE = st.text(alphabet="ab\n \"\\é#%'", max_size=20)


KIND = st.sampled_from(["code", "markdown", "raw"])


@settings(max_examples=120, deadline=None, database=None)
@given(
    sources=st.lists(
        st.tuples(st.sampled_from(["code", "markdown", "raw"]), SOURCE, st.booleans()), max_size=5
    ),
    options=st.sampled_from([{"indent": 1}, {"indent": 2}, {"indent": None}, {"ensure_ascii": True}]),
    changed=st.lists(SOURCE, min_size=5, max_size=5),
)
def test_any_notebook_round_trips_and_any_source_can_be_written(
    sources: list[tuple[str, str, bool]], options: dict[str, Any], changed: list[str]
) -> None:
    made = [
        {
            "cell_type": kind,
            "metadata": {},
            "source": source.splitlines(keepends=True) if as_list else source,
            **({"outputs": [], "execution_count": None} if kind == "code" else {}),
        }
        for kind, source, as_list in sources
    ]
    data = dumped(made, **options)
    book = Notebook.of("x.ipynb", data)
    assert book is not None
    assert book.edited(book.view) == data
    view = "".join(
        f"# %% cell {number} [{kind}]\n{new}\n" if new else f"# %% cell {number} [{kind}]\n"
        for number, ((kind, _, _), new) in enumerate(zip(sources, changed, strict=False), 1)
    )
    after = book.edited(view + "# %% cell new [code]\nlast")
    found = ["".join(cell["source"]) for cell in json.loads(after)["cells"]]
    assert found == [new for _, new in zip(sources, changed, strict=False)] + ["last"]
    again = Notebook.of("x.ipynb", after)
    assert again is not None and again.view.endswith("[code]\nlast\n")
