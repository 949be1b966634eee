"""What is drawn, and how probable it is said to have been."""

import pytest
import torch

from agent.engine.protocol import Sampling
from agent.engine.sampling import draw, logprobs_of, nucleus

pytestmark = pytest.mark.local_model
LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0])


def test_temperature_zero_is_greedy_with_the_logprob_at_one() -> None:
    id, logprob = draw(LOGITS, Sampling(temperature=0), None)
    assert id == 0
    assert logprob == pytest.approx(float(torch.log_softmax(LOGITS, -1)[0]))


def test_frequencies_follow_the_temperature() -> None:
    generator = torch.Generator().manual_seed(0)
    sampling = Sampling(temperature=0.5)
    drawn = [draw(LOGITS, sampling, generator)[0] for _ in range(4000)]
    expected = torch.softmax(LOGITS / 0.5, -1)
    for id in range(4):
        assert drawn.count(id) / 4000 == pytest.approx(float(expected[id]), abs=0.02)


def test_top_p_and_masks_restrict_the_draw_but_not_the_logprob() -> None:
    generator = torch.Generator().manual_seed(0)
    whole = torch.log_softmax(LOGITS, -1)
    allowed = torch.tensor([False, True, True, False])
    for _ in range(50):
        id, logprob = draw(LOGITS, Sampling(temperature=1, top_p=0.7), generator, allowed)
        assert id == 1
        assert logprob == pytest.approx(float(whole[1]))
    assert logprobs_of(LOGITS[None].expand(2, 4), torch.tensor([1, 3]), 0) == pytest.approx(
        [float(whole[1]), float(whole[3])]
    )


def test_the_nucleus_is_the_smallest_set_and_never_empty() -> None:
    probabilities = torch.tensor([0.1, 0.5, 0.4])
    assert nucleus(probabilities, 0.5).tolist() == pytest.approx([0, 0.5, 0])
    assert nucleus(probabilities, 0.6).tolist() == pytest.approx([0, 0.5, 0.4])
    assert nucleus(probabilities, 0.0).tolist() == pytest.approx([0, 0.5, 0])
