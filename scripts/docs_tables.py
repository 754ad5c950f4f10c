"""Regenerate the tables in docs/ and README.md from committed Result JSON.

A table stands between two markers and is replaced as a whole:

    <!-- table: cases docs/results/h200-robust-benchmark.json -->
    ...
    <!-- /table -->

`cases` is one result, case by case; `modes` is one line per result file; `resources` is what ptxas gave the CUDA kernels,
`counters` what Nsight Compute counted in them.
`--check` changes nothing and exits 1 when a table is out of date.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- table: (\w+) ([^>]*?) -->\n)(.*?)(<!-- /table -->)", re.S)


def microseconds(value_ns: float | None) -> str:
    """`value_ns` in microseconds with three significant digits, "–" where there is none."""
    if value_ns is None:
        return "–"
    value_us = value_ns / 1e3
    digits = 0 if value_us >= 100 else 1 if value_us >= 10 else 2
    return f"{value_us:.{digits}f}"


def percent(part: float | None, whole: float | None) -> str:
    return "–" if not part or not whole else f"{100 * part / whole:.0f} %"


def shape(spec: dict) -> str:
    """`batch x q_len x kv_len`, with whatever else the case says."""
    known = ("batchsize", "qseqlen", "kvseqlen")
    if not all(k in spec for k in known):
        return "; ".join(f"{k} {v}" for k, v in spec.items())
    rest = [f"{k} {v}" for k, v in spec.items() if k not in (*known, "seed")]
    return " x ".join(str(spec[k]) for k in known) + (f" ({', '.join(rest)})" if rest else "")


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def cases_table(results: list[dict]) -> str:
    """One result: time against its floors and both verdicts, a line per case."""
    (result,) = results
    times = ["batch x q x kv", "median us [95 %]", "mean ± err us", "measured floor us", "of floor"]
    header = [*times, "format", "strict rel. L2", "official / strict", "backend"]
    return markdown(header, [case_row(case) for case in result["cases"]]) + "\n" + footer(result)


def case_row(case: dict) -> list[str]:
    floor, strict, official = case.get("floor") or {}, case.get("strict") or {}, case.get("official") or {}
    median_ns, ci_ns = case.get("median_ns"), case.get("ci95_ns")
    interval = f" [{microseconds(ci_ns[0])}, {microseconds(ci_ns[1])}]" if ci_ns else ""
    worst = strict.get("rel_l2_worst")
    return [
        shape(case["spec"]),
        microseconds(median_ns) + interval,
        f"{microseconds(case.get('mean_ns'))} ± {microseconds(case.get('err_ns'))}",
        microseconds(floor.get("measured_ns")),
        percent(floor.get("measured_ns"), median_ns),
        strict.get("format") or "–",
        "–" if worst is None else f"{worst:.1e}",
        " / ".join("pass" if verdict.get("ok") else "FAIL" for verdict in (official, strict)),
        case.get("backend") or "–",
    ]


def footer(result: dict) -> str:
    device, score = result["device"], result.get("score") or {}
    parts = [
        f"{device['name']}, driver {device.get('driver') or '–'}",
        f"policy {result['policy']}, mode {result['mode']}",
        f"{result['started_at'][:10]}, submission {result['submission']['sha256'][:12]}, harness {result['harness_version']}",
    ]
    return f"Score ({score.get('ranking_by', '–')}): **{microseconds(score.get('value_ns'))} us**. {', '.join(parts)}.\n"


def modes_table(results: list[dict]) -> str:
    """Several results: the score and the verdicts of each, a line per file."""
    rows = []
    for result in results:
        verdicts = [bool((case.get(kind) or {}).get("ok")) for case in result["cases"] for kind in ("official", "strict")]
        score = result.get("score") or {}
        passed = f"{sum(verdicts)} of {len(verdicts)}"
        score_us = microseconds(score.get("value_ns"))
        ranking, device = score.get("ranking_by", "–"), result["device"]["name"]
        rows.append([result["mode"], result["policy"], score_us, ranking, passed, device])
    return markdown(["mode", "policy", "score us", "ranking", "verdicts passed", "device"], rows)


def resources_table(records: list[dict]) -> str:
    """What ptxas gave each CUDA kernel (scripts/cuda_resources.py)."""
    (record,) = records
    rows = [
        [
            kernel["name"],
            str(kernel["threads"]),
            str(kernel["registers"]),
            f"{kernel['shared_bytes'] / 1024:.1f}",
            str(kernel["spill_bytes"]),
            str(kernel["stack_bytes"]),
            str(kernel["blocks_per_multiprocessor"]),
        ]
        for kernel in record["kernels"]
    ]
    header = ["kernel", "threads", "registers a thread", "shared memory KiB", "spills B", "stack B", "blocks a multiprocessor"]
    made_of = f"Compiled for sm_90a by nvcc {record['nvcc'] or '–'} from sources {record['sources']}"
    return markdown(header, rows) + f"\n{made_of}; nothing here was measured.\n"


def counters_table(records: list[dict]) -> str:
    """What Nsight Compute counted in each official case (scripts/cuda_counters.py)."""
    (record,) = records
    header = ["batch x kv", "blocks x threads", "us under ncu", "DRAM GB/s", "L2 %", "busy %", "issue %", "ALU %", "tensor %"]
    return markdown([*header, "shared memory %", "warps' time"], [counters_row(case) for case in record["cases"]])


def counters_row(case: dict) -> list[str]:
    percent_of = {name: f"{value:.0f}" for name, value in case["percent"].items()}
    return [
        f"{case['batch']} x {case['kv']}",
        f"{case['blocks']} x {case['threads']}",
        microseconds(case["duration_ns"]),
        f"{case['read_bytes'] / case['duration_ns']:.0f}",
        percent_of["l2"],
        f"{100 * case['busy']:.0f}",
        *(percent_of[name] for name in ("issue", "alu", "tensor", "shared")),
        ", ".join(f"{name.replace('_', ' ')} {100 * share:.0f} %" for name, share in case["waits"].items()),
    ]


TABLES: dict[str, Callable[[list[dict]], str]] = {
    "cases": cases_table, "modes": modes_table, "resources": resources_table, "counters": counters_table,
}  # fmt: skip


def regenerate(text: str) -> str:
    """`text` with every marked table replaced by what its result files say."""

    def replace(block: re.Match[str]) -> str:
        results = [json.loads((ROOT / name).read_text()) for name in block[3].split()]
        return block[1] + TABLES[block[2]](results) + block[5]

    return BLOCK.sub(replace, text)


def main() -> int:
    parser = argparse.ArgumentParser(description="regenerate the tables in docs/ and README.md")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a table is out of date")
    check = parser.parse_args().check
    stale = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        old = path.read_text()
        new = regenerate(old)
        if new != old:
            stale.append(str(path.relative_to(ROOT)))
            if not check:
                path.write_text(new)
    if stale:
        print(("out of date (make docs): " if check else "rewritten: ") + ", ".join(stale))
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
