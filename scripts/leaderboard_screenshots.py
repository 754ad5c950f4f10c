"""The pictures of the leaderboard's pages in docs/images/, taken in headless Chromium from made-up, labelled data.

python -m scripts.leaderboard_screenshots
"""

import contextlib
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import uvicorn

from leaderboard.api.app import create_app
from leaderboard.settings import Settings
from leaderboard.store.database import Store
from scripts.headless_chromium import Browser, chromium
from scripts.leaderboard_demo import BOARD, GPU, TOKEN, fill
from scripts.screenshots import MARGIN_PX, place, shoot

WIDTH_PX, PHONE_PX, SCALE = 1200, 390, 1.25
BOTH = ("light", "dark")
BEST = 19  # the submission of the data's last story
SHOTS = (  # name, path, the last element shown, themes
    ("leaderboard", f"/board/{BOARD}/{GPU}", "#history", BOTH),
    ("leaderboard-submission", f"/submission/{BEST}", "figure.floors", BOTH),
    ("leaderboard-overview", "/", "footer", ("light",)),
    ("leaderboard-queue", "/queue", "#runners", ("dark",)),
)


def main() -> int:
    """Write the pictures; 1 where there is no Chromium."""
    if chromium() is None:
        print("error: no chromium in PATH; apt-get install chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, _served(Path(folder)) as url, Browser() as browser:
        browser.call("Network.setCookie", name="kernelproof", value=TOKEN, url=url)
        for name, path, last, schemes in SHOTS:
            for scheme in schemes:
                browser.look(WIDTH_PX, scheme, scale=SCALE)
                _take(browser, url + path, f"{name}-{scheme}.png", last)
        browser.look(PHONE_PX, "dark", scale=SCALE)
        _take(browser, f"{url}/board/{BOARD}/{GPU}", "leaderboard-phone.png", "#ranking")
    return 0


def _take(browser: Browser, url: str, name: str, last: str) -> None:
    browser.visit(url)
    shoot(browser, name, 0, place(browser, last).bottom + MARGIN_PX)


@contextlib.contextmanager
def _served(folder: Path) -> Iterator[str]:
    """The address of a server over the made-up data."""
    store = Store(f"sqlite:///{folder}/demo.sqlite")
    store.migrate()
    fill(store)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(create_app(store, Settings()), log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


if __name__ == "__main__":
    sys.exit(main())
