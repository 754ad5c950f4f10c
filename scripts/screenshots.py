"""The pictures of the report in docs/images/, taken in headless Chromium from a committed Result.

python -m scripts.screenshots
"""

import sys
import tempfile
from pathlib import Path

from harness.report.page import render_html
from harness.result import read_result
from scripts.headless_chromium import Browser, chromium

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "docs" / "results" / "h200-robust-benchmark.json"
IMAGES = ROOT / "docs" / "images"
WIDTH_PX, SCALE, MOST_BYTES = 1200, 1.5, 300_000
MARGIN_PX = 16


def main() -> int:
    """Write the pictures; 1 where there is no Chromium."""
    if chromium() is None:
        print("error: no chromium in PATH; apt-get install chromium", file=sys.stderr)
        return 1
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        page = Path(folder) / "report.html"
        page.write_text(render_html(read_result(RESULT)), encoding="utf-8")
        for scheme in ("light", "dark"):
            browser.look(WIDTH_PX, scheme, scale=SCALE)
            browser.open(page)
            shoot(browser, f"report-{scheme}.png", 0, place(browser, "figure.floors").bottom + MARGIN_PX)
            case = place(browser, "#case-4")
            shoot(browser, f"report-case-{scheme}.png", case.top - MARGIN_PX, case.bottom + MARGIN_PX)
    return 0


class Place:
    """Where an element stands on the page, CSS pixels."""

    def __init__(self, top: float, bottom: float):
        self.top, self.bottom = top, bottom


def place(browser: Browser, selector: str) -> Place:
    """Where the first element that fits stands."""
    box = f"(b => [b.top + scrollY, b.bottom + scrollY])(document.querySelector('{selector}').getBoundingClientRect())"
    return Place(*browser.evaluate(box))


def shoot(browser: Browser, name: str, top: float, bottom: float) -> None:
    """Keep the page from `top` to `bottom`, CSS pixels, as docs/images/NAME."""
    path = IMAGES / name
    browser.screenshot(path, top, bottom - top)
    size_bytes = path.stat().st_size
    print(f"{path.relative_to(ROOT)}: {size_bytes} bytes")
    assert size_bytes < MOST_BYTES, f"{name} has {size_bytes} bytes, more than {MOST_BYTES}; take a smaller scale"


if __name__ == "__main__":
    sys.exit(main())
