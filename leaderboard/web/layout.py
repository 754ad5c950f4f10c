"""What all pages share: the head, the site's navigation, the choice of theme, the foot."""

from typing import Any

from harness.report.markup import Html, join, tag
from leaderboard.web import links
from leaderboard.web.assets import address
from leaderboard.web.csrf import FIELD
from leaderboard.web.visit import THEMES, Visit

PLACES = (("/", "Leaderboards"), ("/queue", "Queue"))
ADMIN_PLACES = (("/history", "Recorded runs"),)
REFRESH_S = 10  # of a live page without scripts


def document(visit: Visit, title: str, *body: Any, live: bool = False) -> str:
    """The whole page as text. A `live` one keeps itself current: its script fetches it again, without scripts it reloads."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · Kernelproof"),
        tag("link", rel="icon", href=address("icon.svg"), type="image/svg+xml"),
        tag("link", rel="stylesheet", href=address("style.css")),
        tag("script", src=address("site.js"), defer=True),
        tag("noscript", tag("meta", http_equiv="refresh", content=REFRESH_S)) if live else None,
    )
    skip = tag("a", "Skip to the content", href="#main", class_="skip")
    main = tag("main", body, id="main", tabindex=-1, data_live="/live" if live else None)
    page = tag("body", skip, _site(visit), main, _foot())
    return f"<!doctype html>\n{tag('html', head, page, lang='en')}\n"


def action(visit: Visit, path: str, label: str, kind: str = "button", **fields: str) -> Html:
    """A form of one button that changes something."""
    hidden = [tag("input", type="hidden", name=name, value=value) for name, value in fields.items()]
    proof = tag("input", type="hidden", name=FIELD, value=visit.form_token)
    return tag("form", hidden, proof, tag("button", label, class_=kind), method="post", action=path, class_="action")


def _site(visit: Visit) -> Html:
    brand = tag("a", _mark(), "Kernelproof", href="/", class_="brand")
    return tag("header", brand, _places(visit), _themes(visit), tag("div", _reader(visit), class_="reader"), class_="site")


def _mark() -> Html:
    """The icon's bars in the colours of the theme."""
    bars = tag("path", d="M3 17V10M9 17V4M15 17v-5M21 17V7", class_="mark")
    return tag("svg", bars, width=24, height=20, viewBox="0 0 24 20", aria_hidden="true")


def _places(visit: Visit) -> Html:
    shown = PLACES + ADMIN_PLACES if visit.is_admin else PLACES
    items = [tag("li", tag("a", name, href=path, aria_current=_current(visit.path, path))) for path, name in shown]
    return tag("nav", tag("ul", items), aria_label="Site")


def _current(here: str, path: str) -> str | None:
    if here == path:
        return "page"
    below = here.startswith("/board/") if path == "/" else here.startswith(path + "/")
    return "true" if below else None


def _reader(visit: Visit) -> Html:
    if visit.name is None:
        return tag("a", "Sign in", href="/login", class_="sign-in", aria_current="page" if visit.path == "/login" else None)
    name = tag("a", visit.name, tag("span", "admin", class_="role") if visit.is_admin else None, href=links.user(visit.name))
    return join((name, action(visit, "/logout", "Sign out", "link")))


def _themes(visit: Visit) -> Html:
    """A choice that the style sheet reads and the script remembers."""
    choices = [
        tag(
            "label",
            tag("input", type="radio", name="theme", id=f"theme-{key}", value=key, checked=key == visit.theme or None),
            name,
        )
        for key, name in THEMES
    ]
    return tag("fieldset", tag("legend", "Theme"), choices, class_="themes")


def _foot() -> Html:
    return tag(
        "footer",
        tag("p", "Times are UTC. Scores are microseconds of device time; nothing on this page comes from another server."),
    )
