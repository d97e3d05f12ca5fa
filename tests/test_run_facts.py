"""What a run says of itself holds no secret."""

import pytest

from harness.run_facts import without_secrets


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("http://bob:s3cret@127.0.0.1:8000/v1?key=s3cret#s3cret", "http://127.0.0.1:8000/v1"),
        ("https://host/v1?api_key=s3cret", "https://host/v1"),
        ("https://user@host:1/a/b", "https://host:1/a/b"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        (None, None),
    ],
)
def test_an_address_in_the_manifest_holds_no_secret(url, kept):
    assert without_secrets(url) == kept
