"""Draw what eval.py leaves on a terminal as docs/images/terminal.svg, and as PNG where a headless Chromium is installed.

    python scripts/terminal_image.py [RESULT.json] [--out docs/images/terminal.svg] [--width 132]

The image is made of a real Result by the code that draws the terminal.
"""

import argparse
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from rich._export_format import CONSOLE_SVG_FORMAT  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.terminal_theme import TerminalTheme  # noqa: E402
from rich.text import Text  # noqa: E402

from harness.result import Result, read_result  # noqa: E402
from harness.terminal.live import finished_view  # noqa: E402
from harness.terminal.notes import heading, warning  # noqa: E402

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def _rgb(code: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(code)
    return red, green, blue


THEME = TerminalTheme(
    (22, 24, 29),
    (222, 225, 230),
    [_rgb(code) for code in ("282c34", "f07178", "98d679", "f0c674", "61afef", "c678dd", "56c8d8", "dee1e6")],
    [_rgb(code) for code in ("707784", "ff966e", "aae68c", "ffd78c", "82c3fa", "d796eb", "78dceb", "ffffff")],
)
PROMPT = "$ "


def draw(result: Result, width: int, command: str) -> str:
    """The SVG of a finished evaluation, without fonts from the network."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, highlight=False)
    console.print(Text.assemble((PROMPT, "bold green"), command), "", sep="\n")
    console.print(heading(result), *(warning(text) for text in result.warnings), sep="\n")
    console.print(finished_view(console, result, len(result.warnings)))
    without_fonts = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.S)
    return console.export_svg(title=result.problem, theme=THEME, code_format=without_fonts, unique_id="terminal")


def photograph(svg: Path) -> Path | None:
    """The PNG of an SVG by a headless browser; None if there is none."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        return None
    width, height = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg.read_text(encoding="utf-8")).groups()  # type: ignore[union-attr]
    png = svg.with_suffix(".png")
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--default-background-color=00000000"]
    size = [f"--window-size={round(float(width))},{round(float(height))}", "--force-device-scale-factor=1.5"]
    command = [browser, *options, *size, f"--screenshot={png}", svg.resolve().as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return png


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("result", type=Path, nargs="?", default=ROOT / "docs" / "results" / "h200-robust-benchmark.json")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images" / "terminal.svg")
    parser.add_argument("--width", type=int, default=132)
    parser.add_argument("--command", default="python eval.py --cases official")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(draw(read_result(options.result), options.width, options.command), encoding="utf-8")
    print(*filter(None, (options.out, photograph(options.out))), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
