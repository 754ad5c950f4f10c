"""The device that a runner offers: its name on leaderboards, what popcorn tells of its machine, a key for its lock."""

import platform
import re
from typing import Any

import torch
import yaml

from harness.devices import DEVICES_FILE, describe_device
from harness.records import to_json
from popcorn.http_models import SystemInfo
from popcorn.http_models import to_json as wire_json

VENDORS = re.compile(r"\b(NVIDIA|AMD|Instinct|GeForce|Radeon|Tesla)\b", re.IGNORECASE)


def describe(device: torch.device) -> dict[str, Any]:
    """The device as the harness describes it, its name on leaderboards, popcorn's SystemInfo, and a key for its lock."""
    about = describe_device(device)
    is_gpu = about.kind != "cpu"
    system = SystemInfo(
        gpu=about.name if is_gpu else "",
        device_count=torch.cuda.device_count() if is_gpu else 0,
        cpu=platform.processor() or platform.machine(),
        runtime={"cuda": "CUDA", "hip": "ROCm"}.get(about.kind, "CPU"),
        platform=platform.platform(),
        torch=torch.__version__,
        hostname=platform.node(),
    )
    key = str(torch.cuda.get_device_properties(device).uuid) if is_gpu else "cpu"
    return {"gpu": gpu_name(about.name, about.kind), "device": to_json(about), "system": wire_json(system), "key": key}


def gpu_name(name: str, kind: str) -> str:
    """The short name that people put into `#!POPCORN gpu`: MI355X, H200; CPU where there is no GPU."""
    if kind == "cpu":
        return "CPU"
    known = [entry["match"] for entry in yaml.safe_load(DEVICES_FILE.read_text(encoding="utf-8"))]
    found = next((match for match in known if match.lower() in name.lower()), None)
    return found or re.sub(r"[^A-Za-z0-9]+", "-", VENDORS.sub("", name)).strip("-") or "GPU"
