"""What the HIP kernels of a submission cost on gfx950 (MI355X): registers, LDS, occupancy."""

from collections.abc import Sequence

from harness.report.markup import Html, tag
from harness.report.page_parts import column_head, section, table
from leaderboard.queries.views import SubmissionDetail
from leaderboard.web import links, words
from leaderboard.web.gfx950_compile import Listing, Resources, resources_of
from leaderboard.web.layout import document
from leaderboard.web.parts import empty, title
from leaderboard.web.visit import Visit

PARTS = (
    "A source that the program joins from parts when it runs, or that is written for another GPU, shows nothing here; write "
    "the joined source to a file, and `python -m gfx950 report FILE.hip` reports on it on your machine."
)


def gfx950_page(visit: Visit, detail: SubmissionDetail) -> str:
    """The whole page; compiling takes seconds the first time."""
    row = detail.row
    where = tag("a", f"Submission {row.id}", href=links.submission(row.id))
    lede = "Every HIP source in the file, compiled for the MI355X and read from the machine code. Nothing is run."
    listings = resources_of(row.sha256, detail.code or "", row.file_name)
    body = listed(listings)
    none = empty(tag("p", "The file holds no HIP source."))
    return document(visit, f"Submission {row.id} on gfx950", title("Resources on gfx950", where, lede), body or none)


def listed(listings: Sequence[Listing]) -> list[Html]:
    """What compiled, a section each; what kept this server from compiling, each reason once; the rejected ones together."""
    reasons = [tag("p", reason, class_="reason") for reason in dict.fromkeys(each.error for each in listings if each.error)]
    compiled = [each for each in listings if not each.error and not each.rejected]
    rejected = [each for each in listings if each.rejected]
    sections = [_listing(index, listing) for index, listing in enumerate(compiled)]
    return [*reasons, *sections, *([_rejected(rejected)] if rejected else [])]


def _rejected(listings: Sequence[Listing]) -> Html:
    """Mostly parts of a larger source: one sentence for all, the compiler's words folded away."""
    found = words.count(len(listings), "source")
    said = [tag("p", PARTS, class_="reason")]
    for each in listings:
        said.append(tag("details", tag("summary", _name(each)), tag("pre", each.rejected)))
    return section("rejected", f"{found} that gfx950 does not compile alone", said)


def _name(listing: Listing) -> str:
    return f"{listing.name}, {listing.lines} lines"


def _listing(index: int, listing: Listing) -> Html:
    name = _name(listing)
    if listing.kernels:
        body = _kernels(listing.kernels)
    else:
        body = empty(tag("p", "It compiles, and holds no kernel: templates leave code only where they are instantiated."))
    return section(f"source-{index + 1}", name, body)


def _kernels(kernels: tuple[Resources, ...]) -> Html:
    heads = [
        column_head("kernel"),
        *(column_head(name, True) for name in ("VGPR", "AGPR", "SGPR", "spilled", "LDS", "scratch")),
    ]
    heads += [
        column_head("waves per SIMD", True),
        column_head("limited by"),
        column_head("code", True),
        column_head("MFMA", True),
    ]
    return table(
        "Kernels; sizes in bytes, registers of one lane (V, A) or wave (S)", heads, [_kernel(each) for each in kernels]
    )


def _kernel(kernel: Resources) -> Html:
    numbers = (
        kernel.vgprs,
        kernel.agprs,
        kernel.sgprs,
        kernel.spilled,
        kernel.lds_bytes,
        kernel.scratch_bytes,
        kernel.waves_per_simd,
    )
    cells = (
        tag("th", kernel.name, scope="row", class_="text"), [tag("td", number, class_="number") for number in numbers],
        tag("td", kernel.limited_by), tag("td", kernel.code_bytes, class_="number"), tag("td", kernel.mfma, class_="number"),
    )  # fmt: skip
    return tag("tr", cells)
