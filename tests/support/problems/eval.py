"""Stands where a competition keeps its evaluator; the harness lays out the file but never runs it."""

raise SystemExit("this evaluator must not run")
