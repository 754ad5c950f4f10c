"""The sections around the cases: warnings, device, how to reproduce."""

import base64
import shlex
from collections.abc import Sequence

from harness.report.markup import Html, tag
from harness.report.page_parts import definitions, section
from harness.report.words import case_labels, case_text, size, version_and_commit
from harness.result import Device, Result, result_text

HIDDEN_SEED = "***"
SEED_NOTE = "The seed was secret; any integer in its place makes a run of the same kind."


def warnings_section(result: Result) -> Html:
    """Those of the run, then those of the cases: value, limit, what to do next."""
    items = [tag("li", warning) for warning in result.warnings]
    for index, (case, label) in enumerate(zip(result.cases, case_labels(result.cases), strict=True)):
        link = tag("a", label, href=f"#case-{index + 1}")
        items += [tag("li", link, ": ", warning) for warning in case.warnings]
    body = tag("ul", items, class_="warnings") if items else tag("p", "None.", class_="quiet")
    return section("warnings", "Warnings", body)


def device_section(device: Device) -> Html:
    """What the times were taken on, its clocks at the start of the run, and the datasheet behind the roofline."""
    clocks, peaks = device.clocks, device.peaks
    facts = (
        ("Name", device.name),
        ("Architecture", f"{device.arch} ({device.kind})"),
        ("Driver", device.driver),
        ("torch", device.torch),
        ("Memory", size(device.memory_bytes) if device.memory_bytes else None),
        ("Last-level cache", size(device.last_level_cache_bytes) if device.last_level_cache_bytes else None),
        ("Core clock at the start", _clock(clocks.core_mhz, clocks.core_max_mhz)),
        ("Memory clock at the start", _clock(clocks.memory_mhz, None)),
        ("Datasheet bandwidth", f"{peaks.bandwidth_bytes_per_s / 1e12:.4g} TB/s" if peaks else None),
        ("Datasheet TFLOP/s", _tflops(device)),
    )
    return section("device", "Device", definitions(facts, "facts"))


def _clock(now_mhz: int | None, most_mhz: int | None) -> str | None:
    if now_mhz is None:
        return None
    return f"{now_mhz} MHz" + (f" of {most_mhz} MHz" if most_mhz else "")


def _tflops(device: Device) -> str:
    peaks = device.peaks
    rates = (("bf16", peaks.bf16_flops), ("fp8", peaks.fp8_flops), ("fp4", peaks.fp4_flops)) if peaks else ()
    return ", ".join(f"{name} {flops / 1e12:.4g}" for name, flops in rates if flops)


def reproduce_section(result: Result) -> Html:
    """The harness's commit, the submission's digest, the command, the cases as a file, and the Result itself."""
    code = tag("code", result.submission.name), ", SHA-256 ", tag("code", result.submission.sha256, class_="digest")
    command = tag("pre", _command(result.command), class_="copy"), SEED_NOTE if _hides_seed(result.command) else None
    cases = tag("pre", "\n".join(map(case_text, result.cases)), class_="copy")
    whole = tag("a", "this Result as JSON", href=_data_url(result), download="result.json")
    steps = [
        tag("li", "The harness: ", _harness(result)),
        tag("li", "The submission: ", code),
        tag("li", "The command:", command),
        tag("li", "The cases, as a file for ", tag("code", "--cases"), ":", cases) if result.cases else None,
        tag("li", "What came out, every sample included: ", whole),
    ]
    return section("reproduce", "How to reproduce", tag("ol", steps))


def _harness(result: Result) -> list[str | Html]:
    version, commit = version_and_commit(result)
    said: list[str | Html] = [f"Kernelproof {version}"]
    if commit:
        said += [", commit ", tag("code", commit.removesuffix("-dirty"))]
    if commit.endswith("-dirty"):
        said.append(" with changes that were not committed")
    return said


def _command(command: Sequence[str]) -> str:
    return "python " + " ".join(word if word == HIDDEN_SEED else shlex.quote(word) for word in command)


def _hides_seed(command: Sequence[str]) -> bool:
    return any(word.endswith(HIDDEN_SEED) for word in command)


def _data_url(result: Result) -> str:
    return "data:application/json;base64," + base64.b64encode(result_text(result).encode()).decode()
