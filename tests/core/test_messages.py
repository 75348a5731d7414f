"""Warnings as values: codes that the page explains, raised once at the public edge, saved and read back."""

import re
import warnings
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import onlooker
from onlooker.core.messages import CODES, Message, as_message, deliver, trusted, undelivered
from tests.support.messages import codes

ROOT = Path(__file__).parent.parent.parent
HARMLESS, SERIOUS = Message("reward-span", "flat", {"span": 0.1}), Message("sign-reversed", "upside down")


def test_the_page_explains_every_code():
    page = (ROOT / "docs" / "when-not-to-trust-it.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+?) \| (.+?) \| (yes|no) \|$", page, re.MULTILINE)
    assert [code for code, *_ in rows] == list(CODES)
    assert {code: trust == "no" for code, _, _, trust in rows} == dict(CODES)


def test_every_code_is_used_and_no_other():
    used = set()
    for file in (ROOT / "onlooker").rglob("*.py"):
        used |= set(re.findall(r"""Message\(\s*["']([a-z-]+)["']""", file.read_text()))
    assert used == set(CODES)
    with pytest.raises(ValueError, match="code is 'beware'; add it to CODES"):
        Message("beware", "of the dog")


def test_a_message_is_raised_once_by_whoever_is_outermost():
    with pytest.warns(onlooker.OnlookerWarning) as caught:
        deliver([HARMLESS, SERIOUS], about="a run")
    assert [str(one.message) for one in caught] == ["a run: flat", "a run: upside down"]
    assert codes(caught) == ["reward-span", "sign-reversed"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with undelivered():
            deliver([SERIOUS], strict=True)
        with pytest.raises(onlooker.OnlookerWarning):
            deliver([HARMLESS])


def test_only_what_may_be_wrong_is_distrusted():
    assert trusted([])
    assert trusted([HARMLESS])
    assert not trusted([HARMLESS, SERIOUS])
    with pytest.raises(onlooker.OnlookerWarning, match="upside down") as raised:
        deliver([HARMLESS, SERIOUS], strict=True)
    assert raised.value.message is SERIOUS


def test_messages_survive_a_file_and_older_files_have_texts_only():
    assert as_message(asdict(HARMLESS)) == HARMLESS
    assert as_message("what an older version said").code == "uncoded"
    assert as_message({"code": "from-the-future", "text": "beware"}) == Message("uncoded", "beware")
    for broken in (1, {"code": "reward-span"}, {"code": 1, "text": "a"}):
        with pytest.raises(ValueError, match="not messages"):
            as_message(broken)


def test_reconstruct_warns_and_with_strict_raises():
    points = np.random.default_rng(0).standard_normal((2000, 1))
    with pytest.warns(onlooker.OnlookerWarning, match="sign") as caught:
        result = onlooker.reconstruct(points, 2 * points)
    # Warnings about the samples follow when these are drawn.
    with pytest.warns(onlooker.OnlookerWarning) as later:
        listed = result.warnings
    assert codes(caught) + codes(later) == codes(listed)
    assert "sign-doubtful" in codes(caught)
    assert caught[0].filename == __file__
    assert not result.trusted
    with pytest.raises(onlooker.OnlookerWarning) as raised:
        onlooker.reconstruct(points, 2 * points, strict=True)
    assert raised.value.message.code == "sign-doubtful"
