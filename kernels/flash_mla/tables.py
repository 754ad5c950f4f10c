"""The tuned table, in a file of its own. The bundler replaces this module by its contents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

PROBLEM = Path(__file__).resolve().parents[2] / "problems" / "flash_mla"

# {device or architecture: [{"shape": [kind, batch, q_len, heads, kv_heads, tokens], "backend": name, "params": {...}}]}
FLASH_MLA_TABLE: dict[str, list[dict[str, Any]]] = yaml.safe_load((PROBLEM / "dispatch.yml").read_text())["flash-mla"]
