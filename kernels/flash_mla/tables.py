"""The tuned table, in a file of its own. The bundler replaces this module by its contents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

PROBLEM = Path(__file__).resolve().parents[2] / "problems" / "flash_mla"

# {device or architecture: [{"kind": ..., "shape": [batch, q_len, heads, tokens], "params": {...}}]}
FLASH_MLA_TABLE: dict[str, list[dict[str, Any]]] = yaml.safe_load((PROBLEM / "dispatch.yml").read_text())
