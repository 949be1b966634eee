"""What a file is, told from its path."""

import pytest

from tools.ranking.prior import DATA, PROSE, TESTS, is_data, prior


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("src/app.py", 1.0),
        ("web/App.TSX", 1.0),
        ("tests/test_app.py", TESTS),
        ("pkg/server_test.go", TESTS),
        ("web/app.test.ts", TESTS),
        ("latest/app.py", 1.0),
        ("README.md", PROSE),
        ("tests/README.md", TESTS * PROSE),
        ("locale/de.po", DATA),
        ("package-lock.json", DATA),
        ("web/app.min.js", DATA),
    ],
)
def test_the_prior_of_a_path(path: str, expected: float) -> None:
    assert prior(path) == expected
    assert is_data(path) == (expected in (DATA, DATA * TESTS))
