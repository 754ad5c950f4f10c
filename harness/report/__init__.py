"""A Result as a file for people: one HTML page, a Markdown table, CSV. Each renderer is a function from Result to text."""

from collections.abc import Callable

from harness.report.csv_rows import render_csv
from harness.report.markdown import render_markdown
from harness.report.page import render_html
from harness.result import Result

RENDERERS: dict[str, Callable[[Result], str]] = {"html": render_html, "markdown": render_markdown, "csv": render_csv}
