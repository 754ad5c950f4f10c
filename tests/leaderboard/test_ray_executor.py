"""Evaluations on a Ray cluster, here one of this machine alone."""

import pytest
from people import DOUBLING

pytest.importorskip("ray", reason="the extra `ray` is not installed")

from leaderboard.problems import pack_problem
from leaderboard.runner.executor import EvaluationDied
from leaderboard.runner.ray_executor import RayExecutor
from leaderboard.runner.request import EvaluationRequest
from leaderboard.stages import stages

pytestmark = pytest.mark.slow


def request() -> EvaluationRequest:
    problem, _ = pack_problem(DOUBLING)
    return EvaluationRequest(problem, "submission.py", (DOUBLING / "submission.py").read_text(), stages("test"))


def test_an_evaluation_on_a_node():
    executor = RayExecutor(is_cpu=True)
    assert executor.describe()["gpu"] == "CPU"
    evaluation, kinds = executor.start(request()), []
    while "done" not in kinds:
        event = evaluation.next(300.0)
        assert event is not None
        kinds.append(event["kind"])
    evaluation.close()
    assert kinds[0] == "stage"
    assert kinds[-2:] == ["result", "done"]


def test_a_process_that_dies_on_its_node():
    evaluation = RayExecutor(is_cpu=True, command=("false",)).start(request())
    with pytest.raises(EvaluationDied, match="exit code 1"):
        evaluation.next(300.0)
    evaluation.close()
