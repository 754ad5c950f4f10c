"""When an output is taken: copied as its call returned, or, without that defence, once the whole device is idle."""

import os

import pytest
import torch

from harness import memory
from harness.codec import encode
from harness.worker import Worker


@pytest.mark.parametrize("copied_at_return", [True, False])
def test_an_output_that_was_not_copied_is_complete_when_it_is_taken(monkeypatch, copied_at_return):
    """Else a queue that nobody has waited for would look like a wrong output instead of a fast one."""
    waited, output = [], torch.arange(4, dtype=torch.float32)
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    worker = Worker()
    worker._device, worker._outputs = torch.device("cuda"), [encode(output)]
    worker._checks = {"copied_at_return": copied_at_return, "poisoned_memory": False}
    fd = memory.create_memfd("test", output.nbytes)
    kind, _ = worker._take([fd], call=0, offsets=[0], nbytes=output.nbytes)
    taken = memory.map_shared(fd, output.nbytes)
    os.close(fd)
    assert kind == "taken"
    assert bytes(taken) == output.numpy().tobytes()
    assert waited == ([] if copied_at_return else [torch.device("cuda")])
