"""The tensors of these tests are small: one thread is faster than two that wait for each other."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
