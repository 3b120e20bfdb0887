"""A published checkpoint at its real size: opening it, its memory, scoring a window, and what a sampling call costs.

    python benchmarks/published.py [--folder path/to/mdlm-owt] [--calls 5]

Without --folder random weights of MDLM's size on OpenWebText (12 × 768, 50,258 rows) are written in its layout to a temporary
folder. Each figure is measured in a process of its own, by what Linux says of its memory. "Products" are the matrix products of
a call and nothing else: those of the blocks, of attention, and of the output head at the same positions, on random numbers.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn import functional as F

WIDTH, DEPTH, HEADS, CONDITION, ROWS, LENGTH = 768, 12, 12, 128, 50_258, 1024
POSITIONS = 32  # at which a sampling call predicts
LIMITS = {"opening seconds": 3.0, "resident / weights": 1.15, "scoring GB": 1.5, "call / products": 1.15}


def write(folder: Path) -> None:
    """Random weights in the layout of MDLM."""
    torch.manual_seed(0)
    shapes = {"vocab_embed.embedding": (ROWS, WIDTH), "output_layer.norm_final.weight": (WIDTH,)}
    shapes |= {"output_layer.linear.weight": (ROWS, WIDTH), "output_layer.linear.bias": (ROWS,)}
    shapes |= {
        "output_layer.adaLN_modulation.weight": (2 * WIDTH, CONDITION),
        "output_layer.adaLN_modulation.bias": (2 * WIDTH,),
    }
    shapes |= {"sigma_map.mlp.0.weight": (CONDITION, 256), "sigma_map.mlp.0.bias": (CONDITION,)}
    shapes |= {"sigma_map.mlp.2.weight": (CONDITION, CONDITION), "sigma_map.mlp.2.bias": (CONDITION,)}
    for i in range(DEPTH):
        block = {"norm1.weight": (WIDTH,), "norm2.weight": (WIDTH,), "attn_qkv.weight": (3 * WIDTH, WIDTH)}
        block |= {"attn_out.weight": (WIDTH, WIDTH), "mlp.0.weight": (4 * WIDTH, WIDTH), "mlp.0.bias": (4 * WIDTH,)}
        block |= {"mlp.2.weight": (WIDTH, 4 * WIDTH), "mlp.2.bias": (WIDTH,)}
        block |= {"adaLN_modulation.weight": (6 * WIDTH, CONDITION), "adaLN_modulation.bias": (6 * WIDTH,)}
        shapes |= {f"blocks.{i}.{name}": shape for name, shape in block.items()}
    tensors = {f"backbone.{name}": 0.02 * torch.randn(shape) for name, shape in shapes.items()}
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    config = {"model_type": "mdlm", "vocab_size": ROWS, "model_length": LENGTH, "hidden_dim": WIDTH, "cond_dim": CONDITION}
    config |= {"n_blocks": DEPTH, "n_heads": HEADS, "dropout": 0.1, "time_conditioning": False, "return_dict": False}
    (folder / "config.json").write_text(json.dumps(config))


def memory(field: str) -> float:
    """VmRSS (now) or VmHWM (at most) of this process, in GB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1e6


def opening(folder: Path) -> dict[str, float]:
    """Seconds to open, and what it takes of memory for each byte of weights."""
    import unnoise

    unnoise.methods()  # what is imported late is imported
    __import__("unnoise.model.model")
    before, start = memory("VmRSS"), time.perf_counter()
    model = unnoise.load(folder)
    seconds = time.perf_counter() - start
    weights = sum(value.numel() * 4 for value in model.weights().values()) / 1e9
    return {"opening seconds": seconds, "resident / weights": (memory("VmRSS") - before) / weights, "weights GB": weights}


def scoring(folder: Path) -> dict[str, float]:
    """The most memory beyond the weights while a window is scored twice."""
    import unnoise

    model = unnoise.load(folder)
    weights = sum(value.numel() * 4 for value in model.weights().values()) / 1e9
    before = memory("VmRSS") - weights
    x = torch.randint(ROWS - 1, (1, LENGTH), generator=torch.Generator().manual_seed(0))
    start = time.perf_counter()
    model.nats(x, draws=1)
    return {"scoring GB": memory("VmHWM") - before - weights, "scoring seconds": time.perf_counter() - start}


@torch.no_grad()
def calls(folder: Path, count: int) -> dict[str, float]:
    """Seconds of a sampling call and of its matrix products alone, the least of so many of each, taken in turns."""
    import unnoise

    torch.set_num_threads(1)
    model = unnoise.load(folder)
    network, mask = model.network, model.process.vocab
    assert isinstance(network, unnoise.Ddit)
    x = torch.full((1, LENGTH), mask)
    where = torch.zeros_like(x, dtype=torch.bool)
    where[:, :: LENGTH // POSITIONS] = True
    t = torch.full((1,), 0.9)
    h, q = torch.randn(LENGTH, WIDTH), torch.randn(1, HEADS, LENGTH, WIDTH // HEADS)
    names = ("qkv", "out", "up", "down")
    blocks = [[network.get_parameter(f"blocks.{layer}.{name}.weight") for name in names] for layer in range(DEPTH)]
    head = network.head.weight[:mask]

    def products() -> None:
        for layer, (qkv, out, up, down) in enumerate(blocks):
            F.linear(h, qkv)
            F.scaled_dot_product_attention(q, q, q)
            F.linear(h, out)
            few = h[:POSITIONS] if layer == DEPTH - 1 else h
            F.linear(F.linear(few, up), down)
        F.linear(h[:POSITIONS], head)

    best = {"call": float("inf"), "products": float("inf")}
    for _ in range(count):
        for name, work in (("call", lambda: model.denoiser(x, t, where)), ("products", products)):
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
    seconds = {f"{name} seconds": value for name, value in best.items()}
    return {"call / products": best["call"] / best["products"], **seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--part", choices=("opening", "scoring", "calls"))
    options = parser.parse_args()
    if options.part:
        work = {"opening": opening, "scoring": scoring, "calls": lambda folder: calls(folder, options.calls)}[options.part]
        print(json.dumps(work(options.folder)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "mdlm"
        if options.folder is None:
            write(folder)
        for part in ("opening", "opening", "scoring", "calls"):  # the first opening reads the disk
            command = [sys.executable, __file__, "--part", part, "--folder", str(folder), "--calls", str(options.calls)]
            for name, value in json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout).items():
                limit = f" (at most {LIMITS[name]})" if name in LIMITS else ""
                print(f"{part:8} {name}: {value:.3f}{limit}")


if __name__ == "__main__":
    main()
