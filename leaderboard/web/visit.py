"""Who looks at a page, and how: what every page is rendered with."""

from dataclasses import dataclass, field
from datetime import UTC, datetime

from fastapi import Request

from leaderboard.api.auth import viewer_of
from leaderboard.web.csrf import form_token

THEME_COOKIE = "theme"
THEMES = (("auto", "Auto"), ("light", "Light"), ("dark", "Dark"))


@dataclass(frozen=True)
class Visit:
    """One request of one reader. `theme` is one of THEMES; `form_token` goes into every form that changes something."""

    path: str
    name: str | None = None
    is_admin: bool = False
    theme: str = "auto"
    form_token: str = ""
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def owns(self, user: str) -> bool:
        """Whether what belongs to `user` is the reader's to see and to change."""
        return self.is_admin or self.name == user


def visit_of(request: Request) -> Visit:
    """The visit that a request makes."""
    viewer, theme = viewer_of(request), request.cookies.get(THEME_COOKIE)
    return Visit(
        path=request.url.path,
        name=viewer.name if viewer else None,
        is_admin=bool(viewer and viewer.is_admin),
        theme=theme if theme in dict(THEMES) and theme else "auto",
        form_token=form_token(request),
    )
