"""Users and tokens."""

from datetime import timedelta

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from leaderboard.accounts import enrol, exchange, identify, make_ticket, make_token, make_user, revoke, token_digest
from leaderboard.api.app import create_app
from leaderboard.errors import BadRequest, LimitReached, NotFound
from leaderboard.settings import Settings
from leaderboard.store.models import Token, User

CLIENT_ID = "0123456789abcdef-client"


def test_a_token_stands_for_a_user_in_a_role(any_store):
    with any_store.writing() as session:
        tokens = {role: make_token(session, "ada", role) for role in ("user", "runner", "admin")}
    with any_store.reading() as session:
        found = {role: identify(session, token) for role, token in tokens.items()}
        assert identify(session, "another") is None
    assert {role: who.role for role, who in found.items() if who} == {role: role for role in tokens}
    assert len({who.user_id for who in found.values() if who}) == 1
    assert [role for role, who in found.items() if who and who.is_admin] == ["admin"]


def test_tokens_end(store):
    with store.writing() as session:
        expired = make_token(session, "ada", lifetime=timedelta(seconds=-1))
        kept, revoked = make_token(session, "bob"), make_token(session, "eve")
        assert revoke(session, "eve") == 1
        assert revoke(session, "eve") == 0
    with store.reading() as session:
        assert [identify(session, token) is not None for token in (expired, kept, revoked)] == [False, True, False]
    with pytest.raises(NotFound, match="tokens list"), store.writing() as session:
        revoke(session, "nobody")


def test_a_ticket_is_good_once(store):
    with store.writing() as session:
        ticket = make_ticket(session, "root", "admin", timedelta(minutes=1))
        token = exchange(session, ticket, timedelta(days=1))
    assert token is not None
    with store.writing() as session:
        assert exchange(session, ticket, timedelta(days=1)) is None
        assert exchange(session, "forged", timedelta(days=1)) is None
        who = identify(session, token)
    assert who is not None
    assert (who.name, who.is_admin) == ("root", True)


def test_a_token_is_no_ticket(store):
    """Else one that is good for a day could be exchanged for one that is good for a month, again and again."""
    with store.writing() as session:
        token = make_token(session, "ada", lifetime=timedelta(days=1))
        assert exchange(session, token, timedelta(days=30)) is None
        assert identify(session, token) is not None


def test_nobody_enrols_as_somebody_else(any_store):
    """Names are public: who finds an id whose digest begins as the name of another user gets an account of nobody."""
    with any_store.writing() as session:
        make_token(session, f"user-{token_digest(CLIENT_ID)[:12]}")
    with pytest.raises(NotFound), any_store.writing() as session:
        enrol(session, CLIENT_ID, 100)
    with any_store.reading() as session:
        assert identify(session, CLIENT_ID) is None


def test_so_many_new_users_an_hour(store):
    """Limits are a user's: without one on users they would be none."""
    with store.writing() as session:
        for number in range(3):
            enrol(session, f"{CLIENT_ID}{number}", 3)
    said = "3 new users in the last hour, and 3 are taken"
    with pytest.raises(LimitReached, match=said) as caught, store.writing() as session:
        enrol(session, f"{CLIENT_ID}3", 3)
    assert 3500 < caught.value.retry_after_s <= 3600
    with store.writing() as session:
        assert enrol(session, f"{CLIENT_ID}0", 3).role == "user"
        with pytest.raises(LimitReached):
            enrol(session, f"{CLIENT_ID}4", 0)


def test_a_client_id_enrols_once(any_store):
    with any_store.writing() as session:
        first, again = enrol(session, CLIENT_ID, 1), enrol(session, CLIENT_ID, 1)
    assert first == again
    assert first.role == "user"
    assert CLIENT_ID[:8] not in first.name
    with any_store.reading() as session:
        assert len(session.scalars(select(Token)).all()) == 1


def test_a_revoked_client_id_does_not_come_back(any_store):
    with any_store.writing() as session:
        revoke(session, enrol(session, CLIENT_ID, 2).name)
    with pytest.raises(NotFound, match="a new one"), any_store.writing() as session:
        enrol(session, CLIENT_ID, 2)


@pytest.mark.parametrize("name", ["", " ada", "a" * 64, "<b>", "a/b", "a\n", "ä", "."])
def test_names_that_cannot_be_shown(store, name):
    with store.writing() as session:
        with pytest.raises(BadRequest, match="is not 1 to 63 letters"):
            make_user(session, name)
        assert session.scalars(select(User)).all() == []


def test_roles_are_known(store):
    with store.writing() as session, pytest.raises(BadRequest, match="known are user, runner, admin"):
        make_token(session, "ada", "root")


@pytest.mark.parametrize("token", ["x", "a" * 15, "a" * 257])
def test_a_client_id_of_another_length_is_told_what_to_do(store, token):
    with store.writing() as session, pytest.raises(BadRequest, match="16 to 256 characters") as refused:
        enrol(session, token, 9)
    assert "POPCORN_CLI_ID" in str(refused.value)


@pytest.mark.parametrize(("is_open", "remedy"), [(True, "any new one of 16 to 256 characters"), (False, "tokens create NAME")])
def test_who_has_no_client_id_is_told_of_what_exists(store, is_open, remedy):
    """`register` is the public client's alone."""
    with TestClient(create_app(store, Settings(open_registration=is_open))) as client:
        answer = client.get("/user/submissions")
    assert answer.status_code == 401
    assert remedy in answer.text
    assert "register" not in answer.text
