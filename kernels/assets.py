"""Tables and kernel sources that live in files of their own. The bundler replaces this module by their contents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

CONFIGS = Path(__file__).resolve().parent.parent / "configs"

# {device or architecture: [{"shape": [batch, q_len, kv_len, heads], "backend": name, "params": {...}}]}
DISPATCH_TABLE: dict[str, list[dict[str, Any]]] = yaml.safe_load((CONFIGS / "dispatch.yml").read_text())["amd-mixed-mla"]
