import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ddit_checkpoints import KINDS, built
from unnoise.checkpoint.published.export import export

torch.set_num_threads(1)  # the toys are tiny, and the tests run in parallel
os.environ.setdefault("OMP_NUM_THREADS", "1")  # so do the processes that they start


@pytest.fixture
def double() -> Iterator[None]:
    """float64 throughout, as the enumerations need."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Export a model in each published layout and return the folders."""
    folder = tmp_path_factory.mktemp("written")
    for kind, (layout, method, network, labels) in KINDS.items():
        export(built(method, network, labels), layout, folder / kind)
    return {kind: folder / kind for kind in KINDS}
