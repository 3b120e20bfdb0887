"""A published checkpoint at its real size: opening it, its memory, scoring a window, and what a sampling call costs.

    python benchmarks/published.py [--kind mdlm] [--folder path/to/mdlm-owt] [--calls 5] [--steps 128]
    python benchmarks/published.py --kind qwen3

Without --folder random weights are written to a temporary folder: `mdlm` has MDLM's size on OpenWebText (12 × 768, 50,258 rows,
float32), `qwen3` that of Qwen3-0.6B in the layout a2d-qwen3 (28 × 1,024, 151,936 rows, bfloat16). Each figure is measured in a
process of its own, by what Linux says of its memory. "Products" are the matrix products of a call and nothing else: those of
the blocks, of attention, and of the output head at the same positions, on random numbers and with weights in float32.
`--steps 128` also writes one text of 1,024 tokens.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

LENGTH = 1024
POSITIONS = 32  # at which a sampling call predicts
LIMITS = {"opening seconds": 3.0, "resident / weights": 1.15, "scoring GB": 1.5}
LIMITS |= dict.fromkeys(("call / products", "call of a text / products"), 1.15)
MDLM = {"model_type": "mdlm", "vocab_size": 50_258, "model_length": LENGTH, "hidden_dim": 768, "cond_dim": 128}
MDLM |= {"n_blocks": 12, "n_heads": 12, "dropout": 0.1, "time_conditioning": False, "return_dict": False}
QWEN3 = {"model_type": "a2d-qwen3", "vocab_size": 151_936, "hidden_size": 1024, "intermediate_size": 3072, "head_dim": 128}
QWEN3 |= {"num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 28, "max_position_embeddings": 32_768}
QWEN3 |= {
    "rope_theta": 1e6,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "mask_token_id": 151_669,
    "eos_token_id": 151_645,
}

Shapes = dict[str, tuple[int, ...]]


def mdlm_shapes() -> Shapes:
    """The tensors of MDLM's layout."""
    rows, width, condition = MDLM["vocab_size"], MDLM["hidden_dim"], MDLM["cond_dim"]
    shapes: Shapes = {"vocab_embed.embedding": (rows, width), "output_layer.norm_final.weight": (width,)}
    shapes |= {"output_layer.linear.weight": (rows, width), "output_layer.linear.bias": (rows,)}
    shapes |= {"output_layer.adaLN_modulation.weight": (2 * width, condition)}
    shapes |= {"output_layer.adaLN_modulation.bias": (2 * width,)}
    shapes |= {"sigma_map.mlp.0.weight": (condition, 256), "sigma_map.mlp.0.bias": (condition,)}
    shapes |= {"sigma_map.mlp.2.weight": (condition, condition), "sigma_map.mlp.2.bias": (condition,)}
    block: Shapes = {"norm1.weight": (width,), "norm2.weight": (width,), "attn_qkv.weight": (3 * width, width)}
    block |= {"attn_out.weight": (width, width), "mlp.0.weight": (4 * width, width), "mlp.0.bias": (4 * width,)}
    block |= {"mlp.2.weight": (width, 4 * width), "mlp.2.bias": (width,)}
    block |= {"adaLN_modulation.weight": (6 * width, condition), "adaLN_modulation.bias": (6 * width,)}
    shapes |= {f"blocks.{i}.{name}": shape for i in range(MDLM["n_blocks"]) for name, shape in block.items()}
    return {f"backbone.{name}": shape for name, shape in shapes.items()}


def qwen3_shapes() -> Shapes:
    """The tensors of a Qwen3 in a 🤗 folder."""
    width, hidden, size = (QWEN3[name] for name in ("hidden_size", "intermediate_size", "head_dim"))
    queries, keys = size * QWEN3["num_attention_heads"], size * QWEN3["num_key_value_heads"]
    block: Shapes = {"self_attn.q_proj": (queries, width), "self_attn.k_proj": (keys, width), "self_attn.v_proj": (keys, width)}
    block |= {"self_attn.o_proj": (width, queries), "self_attn.q_norm": (size,), "self_attn.k_norm": (size,)}
    block |= {"mlp.gate_proj": (hidden, width), "mlp.up_proj": (hidden, width), "mlp.down_proj": (width, hidden)}
    block |= {"input_layernorm": (width,), "post_attention_layernorm": (width,)}
    shapes: Shapes = {"model.embed_tokens.weight": (QWEN3["vocab_size"], width), "model.norm.weight": (width,)}
    layers = range(QWEN3["num_hidden_layers"])
    return shapes | {f"model.layers.{i}.{name}.weight": shape for i in layers for name, shape in block.items()}


KINDS: dict[str, tuple[dict[str, Any], Callable[[], Shapes], torch.dtype]] = {
    "mdlm": (MDLM, mdlm_shapes, torch.float32),
    "qwen3": (QWEN3, qwen3_shapes, torch.bfloat16),
}


def write(kind: str, folder: Path) -> None:
    """Random weights in the published layout, one file."""
    config, shapes, dtype = KINDS[kind]
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: (0.02 * torch.randn(shape)).to(dtype) for name, shape in shapes().items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))


def memory(field: str) -> float:
    """VmRSS (now) or VmHWM (at most) of this process, in GB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1e6


def opening(folder: Path, _: int) -> dict[str, float]:
    """Seconds to open, and what it takes of memory for each byte of weights."""
    import unnoise

    unnoise.methods()  # what is imported late is imported
    __import__("unnoise.model.model")
    before, start = memory("VmRSS"), time.perf_counter()
    model = unnoise.load(folder)
    seconds = time.perf_counter() - start
    weights = stored(folder)
    resident = (memory("VmRSS") - before) / weights
    millions = model.num_parameters / 1e6
    return {"opening seconds": seconds, "resident / weights": resident, "weights GB": weights, "million parameters": millions}


def stored(folder: Path) -> float:
    """GB of weights on the disk."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors")) / 1e9


def scoring(folder: Path, _: int) -> dict[str, float]:
    """The most memory beyond the weights while a window is scored."""
    import unnoise

    before = memory("VmRSS")
    model = unnoise.load(folder)
    x = torch.randint(model.process.vocab, (1, LENGTH), generator=torch.Generator().manual_seed(0))
    start = time.perf_counter()
    model.nats(x, draws=1)
    beyond = memory("VmHWM") - before - stored(folder)
    return {"scoring GB": beyond, "scoring seconds": time.perf_counter() - start}


def mdlm_products(network: Any) -> Callable[[], None]:
    """The matrix products of a call of the network ddit."""
    width, heads = MDLM["hidden_dim"], MDLM["n_heads"]
    h, q = torch.randn(LENGTH, width), torch.randn(1, heads, LENGTH, width // heads)
    blocks = [[layer.qkv.weight, layer.out.weight, layer.up.weight, layer.down.weight] for layer in network.blocks]
    head = network.head.weight[:-1]

    def products() -> None:
        for number, (qkv, out, up, down) in enumerate(blocks, 1):
            F.linear(h, qkv)
            F.scaled_dot_product_attention(q, q, q)
            F.linear(h, out)
            few = h[:POSITIONS] if number == len(blocks) else h
            F.linear(F.linear(few, up), down)
        F.linear(h[:POSITIONS], head)

    return products


def qwen3_products(network: Any) -> Callable[[], None]:
    """The matrix products of a call of the network llama, with its weights in float32."""
    heads, groups, size = (QWEN3[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    h = torch.randn(LENGTH, QWEN3["hidden_size"])
    q, k = torch.randn(1, heads, LENGTH, size), torch.randn(1, groups, LENGTH, size)

    def raised(layer: Any) -> list[Tensor]:
        inside = layer.attention
        return [one.weight.float() for one in (inside.q, inside.k, inside.v, inside.out, layer.gate, layer.up, layer.down)]

    blocks = [raised(layer) for layer in network.blocks]
    head = network.embed.weight.float()

    def products() -> None:
        for number, (to_q, to_k, to_v, out, gate, up, down) in enumerate(blocks, 1):
            for weight in (to_q, to_k, to_v):
                F.linear(h, weight)
            F.linear(F.scaled_dot_product_attention(q, k, k, enable_gqa=True).transpose(1, 2).flatten(2), out)
            few = h[:POSITIONS] if number == len(blocks) else h
            F.linear(few, gate)
            F.linear(F.linear(few, up), down)
        F.linear(h[:POSITIONS], head)

    return products


@torch.no_grad()
def calls(folder: Path, count: int) -> dict[str, float]:
    """Seconds of a sampling call and of its matrix products alone, the least of so many of each, taken in turns."""
    import unnoise

    torch.set_num_threads(1)
    model = unnoise.load(folder)
    x = torch.full((1, LENGTH), model.process.vocab)
    where = torch.zeros_like(x, dtype=torch.bool)
    where[:, :: LENGTH // POSITIONS] = True
    t = torch.full((1,), 0.9)
    products = (mdlm_products if isinstance(model.network, unnoise.Ddit) else qwen3_products)(model.network)
    best = {"call": float("inf"), "products": float("inf")}
    for _ in range(count):
        for name, work in (("call", lambda: model.denoiser(x, t, where)), ("products", products)):
            start = time.perf_counter()
            work()
            best[name] = min(best[name], time.perf_counter() - start)
    seconds = {f"{name} seconds": value for name, value in best.items()}
    return {"call / products": best["call"] / best["products"], **seconds}


@torch.no_grad()
def text(folder: Path, steps: int) -> dict[str, float]:
    """A text of 1,024 tokens in so many steps: seconds of each call, with all that a sampler does, against the products."""
    import unnoise

    torch.set_num_threads(1)
    model = unnoise.load(folder)
    products = (mdlm_products if isinstance(model.network, unnoise.Ddit) else qwen3_products)(model.network)
    asked: list[None] = []
    model.network.register_forward_hook(lambda *_: asked.append(None))
    best = float("inf")
    start = time.perf_counter()
    model.generate(1, length=LENGTH, steps=steps)
    each = (time.perf_counter() - start) / len(asked)
    for _ in range(4):
        start = time.perf_counter()
        products()
        best = min(best, time.perf_counter() - start)
    return {
        "calls": float(len(asked)),
        "call of a text / products": each / best,
        "seconds a call": each,
        "products seconds": best,
    }


PARTS = {"opening": opening, "scoring": scoring, "calls": calls, "text": text}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=list(KINDS), default="mdlm")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--steps", type=int, default=0, help="also write a text in so many steps; 128 take minutes")
    parser.add_argument("--part", choices=list(PARTS))
    options = parser.parse_args()
    if options.part:
        print(json.dumps(PARTS[options.part](options.folder, options.steps if options.part == "text" else options.calls)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / options.kind
        if options.folder is None:
            write(options.kind, folder)
        parts = ["opening", "opening", "scoring", "calls"]  # the first opening reads the disk
        for part in parts + ["text"] * bool(options.steps):
            command = [sys.executable, __file__, "--part", part, "--folder", str(folder)]
            command += ["--calls", str(options.calls), "--steps", str(options.steps)]
            for name, value in json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout).items():
                limit = f" (at most {LIMITS[name]})" if name in LIMITS else ""
                print(f"{part:8} {name}: {value:.3f}{limit}", flush=True)


if __name__ == "__main__":
    main()
