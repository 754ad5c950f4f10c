"""Errors as pages, for browsers; programs get JSON."""

from fastapi import Request
from fastapi.responses import HTMLResponse

from harness.report.markup import tag
from leaderboard.web.layout import document
from leaderboard.web.parts import title
from leaderboard.web.visit import visit_of

NAMES = {
    400: "That cannot be done", 401: "Sign in first", 403: "Not allowed", 404: "Not found", 405: "Not allowed here",
    422: "That cannot be done", 429: "Too many requests", 500: "Our mistake", 503: "Not available now",
}  # fmt: skip


def wants_html(request: Request) -> bool:
    """Whether a browser asks for a page."""
    return "text/html" in request.headers.get("Accept", "")


def error_page(request: Request, status: int, detail: str) -> HTMLResponse:
    """The page of an error."""
    visit = visit_of(request)
    name = NAMES.get(status, "Something went wrong")
    ways = [tag("a", "Leaderboards", href="/"), None if visit.name else tag("a", "Sign in", href="/login")]
    heading = title(name, eyebrow=f"Error {status}", lede=f"{detail[:1].upper()}{detail[1:].rstrip('.')}.")
    return HTMLResponse(document(visit, name, heading, tag("p", ways, class_="actions")), status)
