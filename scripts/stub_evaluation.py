"""An evaluation that measures nothing: it speaks the protocol of leaderboard.runner.evaluate and makes its figures up.

For tests and load measurements of the queue, the runners and the server, which then cost next to nothing. What it does
stands in the submission, as comments: `# stub: wrong`, `# stub: wrong in secret`, `# stub: sleep 0.5` (seconds a stage),
`# stub: die`, `# stub: fault`, `# stub: score 1234.5` (ns).
"""

import hashlib
import json
import re
import sys
import time

from harness.result import (
    SCHEMA_VERSION,
    CaseResult,
    Device,
    Official,
    Result,
    Scalar,
    Score,
    State,
    Status,
    Submission,
    Timing,
    result_to_json,
)

DEVICE = Device(name="Stub device", kind="cpu", arch="none", driver="0", torch="0")
DESCRIPTION = {"gpu": "CPU", "device": {"name": "Stub device", "kind": "cpu", "arch": "none", "driver": "0", "torch": "0"},
               "system": {"cpu": "stub", "hostname": "stub"}, "key": "stub"}  # fmt: skip


SPEC: dict[str, Scalar] = {"size": 8, "seed": 1}


def main() -> int:
    """Answer the request on stdin."""
    request = json.loads(sys.stdin.readline())
    if request.get("describe"):
        _send("device", **DESCRIPTION)
    else:
        _evaluate(request)
    _send("done")
    return 0


def _send(kind: str, **fields: object) -> None:
    print(json.dumps({"kind": kind, **fields}), flush=True)


def _evaluate(request: dict) -> None:
    code, acts = request["code"], re.findall(r"# stub: (.*)", request["code"])
    for stage in request["stages"]:
        _send("stage", **stage, limit_s=60.0)
        _send("progress", **stage, case=1, cases=1, phase="sampling", passed=0)
        time.sleep(next((float(act.split()[1]) for act in acts if act.startswith("sleep")), 0.0))
        if "die" in acts:
            sys.exit("the stub was told to die")
        if "fault" in acts:
            _send("failed", error="the stub has no device")
            return
        wrong = "wrong" in acts or ("wrong in secret" in acts and stage["secret"])
        score_ns = next((float(act.split()[1]) for act in acts if act.startswith("score")), 1000.0)
        result = stub_result(code, stage["mode"], not wrong, score_ns, request["file_name"])
        _send("result", secret=stage["secret"], result=result_to_json(result))
        if wrong:
            return


def stub_result(code: str, mode: str, passes: bool = True, score_ns: float = 1000.0, name: str = "submission.py") -> Result:
    """A Result of one case with made-up figures."""
    timed = mode in ("benchmark", "leaderboard")
    timing = Timing(score_ns, (score_ns, score_ns), score_ns, 0.0, 0.0, score_ns, score_ns, 2, (int(score_ns), int(score_ns)))
    if passes:
        case = CaseResult(SPEC, Status.PASS, official=Official(True), timing=timing if timed else None, backend="stub")
    else:
        case = CaseResult(SPEC, Status.WRONG, official=Official(False, f"values differ, the code was {code[-20:]}"))
    content = code.encode()
    return Result(
        schema_version=SCHEMA_VERSION, problem="doubling", mode=mode, policy="robust", cases_from="stub", command=(),
        started_at=time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()), harness_version="stub", containment=(),
        submission=Submission(name, hashlib.sha256(content).hexdigest(), len(content)), device=DEVICE, state=State.COMPLETE,
        cases_total=1, cases=(case,), score=Score("geom", "median", score_ns if passes else None) if timed else None,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
