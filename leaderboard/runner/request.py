"""What an evaluation is asked for: self-contained, so that any machine can be asked."""

from dataclasses import asdict, dataclass
from typing import Any

from leaderboard.problems import PackedProblem
from leaderboard.stages import Stage


@dataclass(frozen=True)
class EvaluationRequest:
    """One job's evaluation."""

    problem: PackedProblem
    file_name: str
    code: str
    stages: tuple[Stage, ...]
    policy: str = "robust"
    budget_s: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "EvaluationRequest":
        """The request that `to_json` wrote."""
        steps = tuple(Stage(**stage) for stage in data["stages"])
        return cls(**{**data, "problem": PackedProblem(**data["problem"]), "stages": steps})
