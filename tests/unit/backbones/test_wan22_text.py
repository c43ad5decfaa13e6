from __future__ import annotations

import torch

from solarwm.backbones.wan22_core.text import encode_words, words


def test_words_are_lower_case_and_end_with_the_mark():
    assert words("A red Box, 2 pillars") == ["a", "red", "box", ",", "2", "pillars", "</s>"]


def test_rows_past_the_prompt_are_zero_and_the_rest_is_not():
    states = encode_words(["a red box", ""], length=8, width=16)
    assert states.shape == (2, 8, 16)
    assert (states[0, :4].norm(dim=-1) > 0).all()
    assert states[0, 4:].abs().max() == 0
    assert states[1, 0].norm() > 0
    assert states[1, 1:].abs().max() == 0


def test_the_same_word_has_the_same_vector_anywhere_but_its_place():
    states = encode_words(["box pan", "pan box"], length=4, width=32)
    again = encode_words(["box pan"], length=4, width=32)
    assert torch.equal(states[0], again[0])
    close = torch.nn.functional.cosine_similarity(states[0, 0], states[1, 1], dim=0)
    apart = torch.nn.functional.cosine_similarity(states[0, 0], states[1, 0], dim=0)
    assert close > 0.9
    assert abs(apart) < 0.7


def test_a_long_prompt_keeps_the_end_mark():
    long, short = " ".join(["word"] * 50), " ".join(["word"] * 3)
    assert torch.equal(
        encode_words([long], length=4, width=8), encode_words([short], length=4, width=8)
    )
