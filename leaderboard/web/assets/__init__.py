"""The style sheet, the script and the icon: files of this folder, and the HTML report's style, which the site builds on."""

import hashlib
from functools import cache
from pathlib import Path

from fastapi import Response

from harness.report.page import STYLE

FOLDER = Path(__file__).parent
TYPES = {"style.css": "text/css", "site.js": "text/javascript", "icon.svg": "image/svg+xml"}
FOR_EVER = "public, max-age=31536000, immutable"
DIGEST_DIGITS = 12


@cache
def content(name: str) -> str:
    """The text of one asset; `name` is a key of TYPES."""
    own = (FOLDER / name).read_text(encoding="utf-8")
    return f"{STYLE}\n{own}" if name == "style.css" else own


@cache
def address(name: str) -> str:
    """Where an asset is served; it changes with the content, so that browsers may keep what they have."""
    digest = hashlib.sha256(content(name).encode()).hexdigest()[:DIGEST_DIGITS]
    return f"/assets/{name}?{digest}"


def asset(name: str) -> Response | None:
    """The answer to a request for an asset; None if there is none of that name."""
    if name not in TYPES:
        return None
    return Response(content(name), media_type=TYPES[name], headers={"Cache-Control": FOR_EVER})
