"""Versions of a policy: rebuilt byte for byte, whole or not at all."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.engine.policies import (
    BrokenPolicy,
    Tensor,
    prune,
    read,
    restore,
    versions,
    write,
    write_delta,
    write_snapshot,
)

TIES = {"lm_head.weight": "model.embed_tokens.weight"}


def bf16(values: np.ndarray) -> np.ndarray:
    """Rounded to nearest even, as the bytes of bf16."""
    bits = values.astype("<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").view(np.uint8)


def weights(seed: int, size: int = 64) -> dict[str, Tensor]:
    draw = np.random.default_rng(seed)
    embed = Tensor("BF16", (size, 8), bf16(draw.normal(0, 0.02, size * 8)))
    norm = Tensor("F32", (size,), draw.normal(0, 1, size).astype("<f4").view(np.uint8))
    empty = Tensor("BF16", (0, 3), np.zeros(0, np.uint8))
    return {"model.embed_tokens.weight": embed, "norm": norm, "empty": empty, "lm_head.weight": embed}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(a[k].digest() == b[k].digest() for k in a)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pair")
    (root / "config.json").write_text("{}")
    write_snapshot(root / "p", 0, weights(0), root, TIES)
    write_delta(root / "p", 1, weights(0), weights(1))
    return root / "p"


def test_fifty_versions_are_rebuilt_byte_for_byte(tmp_path: Path, files: Path) -> None:
    policy, previous = tmp_path / "p", None
    for n in range(50):
        write(policy, n, weights(n), files, previous, TIES, every=8)
        previous = weights(n)
    assert versions(policy) == list(range(50))
    assert all(same(restore(policy, n), weights(n)) for n in range(50))
    assert restore(policy, 49)["lm_head.weight"].digest() == weights(49)["lm_head.weight"].digest()
    gone = prune(policy, [20, 49])
    assert versions(policy) == [*range(16, 21), 48, 49] and 15 in gone
    assert same(restore(policy, 20), weights(20)) and same(restore(policy, 49), weights(49))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_flipped_bit_anywhere_is_refused(pair: Path, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(p for p in pair.glob("*/*") if p.is_file())))
    raw = path.read_bytes()
    at = data.draw(st.integers(0, len(raw) - 1))
    cut = data.draw(st.booleans())
    bad = raw[:at] if cut else raw[:at] + bytes([raw[at] ^ 1 << data.draw(st.integers(0, 7))]) + raw[at + 1 :]
    path.write_bytes(bad)
    try:
        with pytest.raises(BrokenPolicy):
            restore(pair, 1)
    finally:
        path.write_bytes(raw)
    assert same(restore(pair, 1), weights(1))


def test_a_wrong_base_shape_or_link_is_refused(pair: Path, tmp_path: Path, files: Path) -> None:
    with pytest.raises(BrokenPolicy, match="other tensors than those given"):
        read(pair / "1", weights(5))
    with pytest.raises(BrokenPolicy, match="changes only"):
        read(pair / "1")
    with pytest.raises(BrokenPolicy, match="not that of version 1"):
        write_delta(pair, 2, weights(0), weights(2))
    with pytest.raises(BrokenPolicy, match="type or shape"):
        write_delta(pair, 2, weights(1), weights(2, size=32))
    with pytest.raises(BrokenPolicy, match="there already"):
        write_snapshot(pair, 1, weights(1), files)
    with pytest.raises(BrokenPolicy, match="no complete version"):
        restore(pair, 7)
    assert versions(pair) == [0, 1] and not list(pair.glob(".new-*"))


def test_a_killed_writer_leaves_complete_versions_only(tmp_path: Path, files: Path) -> None:
    policy = tmp_path / "p"
    code = (
        "import sys; sys.path[:0] = sys.argv[1:3]\nfrom pathlib import Path\n"
        "from test_policies import weights, TIES\nfrom agent.engine.policies import write, versions\n"
        "p, f = Path(sys.argv[3]), Path(sys.argv[4])\nn = len(versions(p))\n"
        "while True:\n    write(p, n, weights(n), f, weights(n - 1) if n else None, TIES)\n    n += 1\n"
    )
    here = Path(__file__)
    for wait in (0.6, 0.73, 0.91):
        arguments = [str(here.parents[3]), str(here.parent), str(policy), str(files)]
        writer = subprocess.Popen([sys.executable, "-c", code, *arguments])
        until = time.monotonic() + wait
        while time.monotonic() < until:
            if seen := versions(policy):
                assert same(restore(policy, seen[-1]), weights(seen[-1]))
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    seen = versions(policy)
    assert seen and seen == list(range(len(seen)))
    write(policy, len(seen), weights(len(seen)), files, None, TIES)
    assert same(restore(policy, len(seen)), weights(len(seen))) and not list(policy.glob(".new-*"))


def test_a_small_step_costs_at_most_four_percent(tmp_path: Path, files: Path) -> None:
    draw, count = np.random.default_rng(0), 1 << 20
    full = draw.normal(0, 0.02, count).astype("<f4")
    full = (full.view("<u4") & 0xFFFF0000).view("<f4")
    step = full + 1e-6 * draw.choice(np.array([-1, 1]), count)
    masters = full + draw.uniform(-0.5, 0.5, count) * np.spacing(np.abs(full)) * 65536
    old, new = bf16(masters), bf16(masters + (step - full))
    before, after = ({"w": Tensor("BF16", (count,), d)} for d in (old, new))
    write_snapshot(tmp_path / "p", 0, before, files)
    path = write_delta(tmp_path / "p", 1, before, after)
    assert same(restore(tmp_path / "p", 1), after)
    assert 0 < (path / "delta.bin").stat().st_size / old.size <= 0.04
