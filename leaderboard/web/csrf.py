"""Forms that only our own pages can send.

A form carries an HMAC whose key is the session cookie: the cookie is HttpOnly and of another origin for everybody else, so
nobody else can compute it, and the server has nothing to remember. Without the cookie there is no form to protect.
"""

import hashlib
import hmac
from urllib.parse import parse_qs

from fastapi import Request

COOKIE = "kernelproof"
FIELD = "csrf"
NOT_OURS = "this form was not sent from a page of this server, or you have signed in anew; reload the page"
MOST_BYTES = 4096  # of a form: a token and a path


def form_token(request: Request) -> str:
    """The value of the hidden field for this reader; empty for one who is not signed in."""
    key = request.cookies.get(COOKIE)
    return hmac.new(key.encode(), FIELD.encode(), hashlib.sha256).hexdigest() if key else ""


def is_ours(request: Request, field: str) -> bool:
    """Whether a form with this hidden field came from a page that this reader was shown."""
    expected = form_token(request)
    return bool(expected) and hmac.compare_digest(expected.encode(), field.encode())


async def form_fields(request: Request) -> dict[str, str]:
    """The fields of a urlencoded form, the last of a name; empty for another kind of body, or one that is too long."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            return {}
    return {name: values[-1] for name, values in parse_qs(body.decode("ascii", "replace")).items()}
