"""Signing in: a token is pasted once, the browser keeps it in a cookie that no script can read."""

from harness.report.markup import Html, tag
from leaderboard.web.layout import document
from leaderboard.web.parts import title
from leaderboard.web.visit import Visit

FAILED = "This token is unknown, revoked or expired. Check that all of it was copied."


def login_page(visit: Visit, failed: bool, goal: str) -> str:
    """The form; `goal` is the path to go to afterwards."""
    if visit.name is not None:
        return document(visit, "Sign in", title("Signed in", lede=f"You are {visit.name}."))
    lede = "With a token you see your own code and reports, and can cancel and delete what is yours."
    problem = tag("p", FAILED, class_="reason", role="alert", id="problem") if failed else None
    return document(visit, "Sign in", title("Sign in", lede=lede), problem, _form(failed, goal), _where_from())


def _form(failed: bool, goal: str) -> Html:
    box = tag(
        "input", type="password", id="token", name="token", required=True, autocomplete="current-password", spellcheck="false",
        aria_describedby="problem" if failed else None,
    )  # fmt: skip
    hidden = [
        tag("input", type="hidden", name="next", value=goal),
        tag("input", type="text", autocomplete="username", value="token", hidden=True),  # for password managers
    ]
    button = tag("p", tag("button", "Sign in", class_="button"), class_="buttons")
    field = tag("p", tag("label", "Token", for_="token"), box, class_="field wide-field")
    return tag("form", hidden, field, button, method="post", action="/login", class_="filters")


def _where_from() -> Html:
    told = (
        "An administrator makes one with ", tag("code", "python -m leaderboard tokens create NAME"),
        ". It is the same that the command line sends: ", tag("code", "cli_id"), " in ", tag("code", "~/.popcorn.yaml"), ".",
    )  # fmt: skip
    return tag("p", told, class_="quiet later")


def safe_goal(path: str) -> str:
    """A path on this server, or `/`: nobody is sent elsewhere after signing in."""
    plain = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable() and path.isascii()
    return path if plain else "/"
