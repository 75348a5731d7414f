"""Addresses of stores, and what stores answer, in a sentence; tests/workers has a server."""

import copy

import pytest

from onlooker.storage.stores import StoreError, StorePath, as_place


def test_an_address_is_a_path():
    place = as_place("s3://bucket/runs/?region=eu-west-1")
    assert place == StorePath("s3", "bucket/runs", "region=eu-west-1")
    assert str(place / "a" / "0001.parquet") == "s3://bucket/runs/a/0001.parquet"
    assert ((place / "0001.parquet").name, (place / "0001.parquet").stem) == ("0001.parquet", "0001")
    assert (place / "0001.parquet").suffix == ".parquet"
    assert (place / "x").options == "region=eu-west-1"
    assert str(as_place("file:///runs")) == "/runs"
    with pytest.raises(ValueError, match="is an address of another kind"):
        as_place("ftp://bucket/runs")


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("When listing: AWS Error NO_SUCH_BUCKET during ListObjectsV2 operation", "there is no such bucket"),
        ("AWS Error ACCESS_DENIED during HeadObject operation: No response body.", "access is denied; check"),
        ("AWS Error UNKNOWN (HTTP status 301) during HeadObject operation", r"in another region; add \?region="),
        ("AWS Error NETWORK_CONNECTION during PutObject operation: curlCode: 7", "it cannot be reached"),
        ("AWS Error SLOW_DOWN during GetObject operation: Please reduce", "too busy, after several attempts"),
        ("google::cloud::Status(PERMISSION_DENIED: no)", "access is denied"),
        ("something new\nand more of it", "something new"),
    ],
)
def test_what_a_store_answers_is_one_sentence(said, sentence):
    place = as_place("s3://bucket/runs")
    with pytest.raises(StoreError, match=rf"^s3://bucket/runs: .*{sentence}") as raised, place._plain_errors():
        raise OSError(said)
    assert str(raised.value).count("\n") == 0
    # An error of the operating system, not a torn file; and it comes back from workers.
    assert raised.value.errno
    assert str(copy.copy(raised.value)) == str(raised.value)
