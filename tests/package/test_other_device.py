"""Another device than the CPU: nothing is mixed, in any verb of any method."""

import os
from pathlib import Path

import forked
import unnoise

SCRIPT = Path(__file__).parents[1] / "support" / "other_device.py"


def test_every_method_works_elsewhere() -> None:
    done = forked.run([str(SCRIPT)])
    assert done.stdout.split() == unnoise.methods(), done.stderr[-2000:]


def test_a_mixture_is_noticed() -> None:
    """Check the stand-in itself: a sum over two devices fails, as it would with CUDA."""
    words = "import torch, other_device as e; e.patch()\nwith e.Watching(): torch.ones(2, device='meta') + torch.ones(2)"
    done = forked.run(
        ["-c", words], env=os.environ | {"PYTHONPATH": f"{SCRIPT.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    )
    assert done.returncode == 1 and "mixes tensors of two devices" in done.stderr
