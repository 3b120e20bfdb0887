"""Another device than the CPU: nothing is mixed, in any verb of any method."""

import subprocess
import sys
from pathlib import Path

import unnoise

SCRIPT = Path(__file__).parents[1] / "support" / "other_device.py"


def test_every_method_works_elsewhere() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False)
    assert done.stdout.split() == unnoise.methods(), done.stderr[-2000:]


def test_a_mixture_is_noticed() -> None:
    """Check the stand-in itself: a sum over two devices fails, as it would with CUDA."""
    words = "import torch, other_device as e; e.patch()\nwith e.Watching(): torch.ones(2, device='meta') + torch.ones(2)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False, cwd=SCRIPT.parent)
    assert done.returncode == 1 and "mixes tensors of two devices" in done.stderr
