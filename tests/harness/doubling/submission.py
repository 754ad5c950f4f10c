"""Behaves as the case asks: the `act` of its data names what goes wrong."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import torch
from task import input_t, output_t


def deep(x: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("kernel exploded")


class Lazy(torch.Tensor):
    pass


def sockets() -> list[socket.socket]:
    """Every socket of this process: the channel to the harness among them."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                found.append(socket.socket(fileno=os.dup(int(name))))
        except OSError:
            pass
    return found


def send(data: bytes) -> None:
    for channel in sockets():
        channel.setblocking(True)
        channel.sendall(data)


def frame(text: str) -> bytes:
    return len(text).to_bytes(4, "big") + text.encode()


def chatter(x: torch.Tensor) -> torch.Tensor:
    for _ in range(200):
        print("x" * 10_000)
    return x * 2


def cycle(x: torch.Tensor) -> list:
    loop: list = [x]
    loop.append(loop)
    return loop


ACTS = {
    "honest": lambda x: x * 2,
    "raises": deep,
    "exits": lambda x: sys.exit(0),
    "hard_exit": lambda x: os._exit(0),
    "segfault": lambda x: ctypes.string_at(0),
    "killed": lambda x: os.kill(os.getpid(), signal.SIGKILL),
    "hangs": lambda x: time.sleep(1e6),
    "hangs_in_child": lambda x: subprocess.run(["sleep", "100000"]),
    "nan": lambda x: x * float("nan"),
    "rough": lambda x: x * 2.05,
    "wrong": lambda x: x * 3,
    "shape": lambda x: x[:-1] * 2,
    "dtype": lambda x: (x * 2).double(),
    "none": lambda x: None,
    "numpy": lambda x: np.zeros(len(x), dtype=np.float32),
    "cycle": cycle,
    "lazy": lambda x: (x * 2).as_subclass(Lazy),
    "oom": lambda x: torch.empty(1 << 46, dtype=torch.uint8, device=x.device),
    "memory_error": lambda x: bytearray(1 << 46),
    "device_fault": lambda x: (_ for _ in ()).throw(RuntimeError("CUDA error: an illegal memory access was encountered")),
    "chatters": chatter,
    "view": lambda x: torch.stack((x * 2, x), dim=1)[:, 0],
    "scribbles": lambda x: x.mul_(2),
    "forges_verdict": lambda x: send(frame('{"kind": "called", "elapsed_ns": 1, "host_ns": 1, "output": 7}')),
    "forges_bytes": lambda x: send(b"GET / HTTP/1.0\r\n\r\n"),
    "truncates": lambda x: (send(b"\x00\x00\x01\x00{"), os._exit(0)),
    "oversizes": lambda x: send(b"\xff\xff\xff\xff" + b"x" * 100),
    "nests": lambda x: send(frame("[" * 100_000)),
}


def custom_kernel(data: input_t) -> output_t:
    x, options = data
    return ACTS[options["act"]](x)


def describe(data: input_t) -> dict:
    return {"backend": "torch", "params": {"act": data[1]["act"]}}
