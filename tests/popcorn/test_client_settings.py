"""Where the client finds the server and the token."""

import pytest

from popcorn.client_errors import UsageFault
from popcorn.settings import DEFAULT_URL, connection_from


def test_the_environment_comes_before_the_file(tmp_path):
    (tmp_path / ".popcorn.yaml").write_text("cli_id: from-file\n")
    found = connection_from({"POPCORN_API_URL": "http://lab:1", "POPCORN_CLI_ID": "from-env"}, tmp_path)
    assert (found.url, found.token) == ("http://lab:1", "from-env")
    assert connection_from({}, tmp_path).token == "from-file"


def test_nothing_is_needed(tmp_path):
    found = connection_from({}, tmp_path)
    assert (found.url, found.token) == (DEFAULT_URL, None)


@pytest.mark.parametrize("content", [b"\xff", b"a: [", b"cli_id: 'a\\nb\xc3\xa4'"])
def test_a_file_that_cannot_be_used_is_named(tmp_path, content):
    (tmp_path / ".popcorn.yaml").write_bytes(content)
    with pytest.raises(UsageFault):
        connection_from({}, tmp_path)


@pytest.mark.parametrize("url", ["lab:8000", "ftp://lab", "http://", "http://lab?x=1"])
def test_an_address_that_is_none_is_refused(url, tmp_path):
    with pytest.raises(UsageFault, match="address"):
        connection_from({"POPCORN_API_URL": url}, tmp_path)


def test_a_token_is_not_shown(tmp_path):
    assert "sesame" not in repr(connection_from({"POPCORN_CLI_ID": "sesame"}, tmp_path))
