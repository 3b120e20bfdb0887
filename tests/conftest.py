import os
from collections.abc import Iterator

import pytest
import torch

torch.set_num_threads(1)  # the toys are tiny, and the tests run in parallel
os.environ.setdefault("OMP_NUM_THREADS", "1")  # so do the processes that they start


@pytest.fixture
def double() -> Iterator[None]:
    """float64 throughout, as the enumerations need."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
