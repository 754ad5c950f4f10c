"""The site over a store of made-up data, for tests: who asks is said by a token, what comes back is a tree."""

import functools
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import httpx
from fastapi.testclient import TestClient

sys.path.append(str(Path(__file__).parent.parent / "harness"))  # its readers of pages serve here too

from html_tree import Element, parse_html
from page_checks import CONTRASTS as CONTRASTS
from page_checks import LEAST_CONTRAST as LEAST_CONTRAST
from report_results import hostile as hostile

from leaderboard.api.app import create_app
from leaderboard.settings import Settings
from leaderboard.store.database import Store
from scripts.leaderboard_demo import TOKEN, fill

ADA, ADMIN, GRACE = TOKEN, "demo-token-of-the-admin", "demo-token-of-demo-grace"
BOARD = "/board/demo-mixed-mla/DEMO"
BEST, OF_GRACE, WRONG, HACKED, RUNNING, WAITING = 19, 16, 3, 13, 21, 22  # submissions of the made-up data, the first by ada


@dataclass
class Site:
    """A served store."""

    store: Store
    client: TestClient

    def get(self, path: str, token: str | None = None, accept: str = "text/html") -> httpx.Response:
        """The answer to a browser, signed in by a cookie if there is a token."""
        return self.client.get(path, headers={"Accept": accept, **_cookie(token)}, follow_redirects=False)

    def page(self, path: str, token: str | None = None) -> Element:
        """The page as a tree, read strictly."""
        answer = self.get(path, token)
        assert answer.status_code == 200, (path, answer.status_code, answer.text[:300])
        return parse_html(answer.text)

    def post(self, path: str, token: str | None = None, **fields: str) -> httpx.Response:
        """The answer to a form."""
        return self.client.post(path, data=fields, headers={"Accept": "text/html", **_cookie(token)}, follow_redirects=False)

    def form_token(self, token: str) -> str:
        """The hidden field of this reader's forms."""
        fields = self.page("/", token).all("input", name_="csrf")
        return str(fields[0].attributes["value"])


def empty_site(folder: Path) -> Site:
    """A site over a new store."""
    store = Store(f"sqlite:///{folder}/store.sqlite")
    store.migrate()
    patient = Settings(lease_s=3600.0)  # the made-up runners do not report
    return Site(store, TestClient(create_app(store, patient), raise_server_exceptions=True))


def demo_site(folder: Path) -> Site:
    """A site with boards, users, submissions of every ending, and a queue."""
    shutil.copy(Path(_filled().name, "store.sqlite"), folder)
    return empty_site(folder)


@functools.cache
def _filled() -> tempfile.TemporaryDirectory:
    """The folder of a filled store, made once in a process: inventing takes seconds, copying does not."""
    folder = tempfile.TemporaryDirectory(prefix="kernelproof-demo-")
    store = Store(f"sqlite:///{folder.name}/store.sqlite")
    store.migrate()
    fill(store)
    store.close()
    return folder


def _cookie(token: str | None) -> dict[str, str]:
    return {"Cookie": f"kernelproof={token}"} if token else {}
