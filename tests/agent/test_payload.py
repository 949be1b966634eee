"""`agent.payload`: whatever was sent is read back."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.payload import decode, encode

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(10**40), max_value=10**40)
    | st.floats(allow_nan=False)
    | st.text(alphabet=st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_any_json_value_is_read_back(value: Any) -> None:
    assert decode(encode(value)) == value


def test_numbers_that_json_lacks_are_kept() -> None:
    data = decode(encode({"logprobs": [-math.inf, math.nan], "none": None}))
    assert data["logprobs"][0] == -math.inf
    assert math.isnan(data["logprobs"][1])
    assert data["none"] is None


def test_deep_nesting_is_kept() -> None:
    data: Any = "leaf"
    for _ in range(400):
        data = [data]
    assert decode(encode(data)) == data


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        encode({"when": object()})
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(TypeError, match="refers to itself"):
        encode(loop)
