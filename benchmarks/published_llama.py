"""A published diffusion model of 0.6 B parameters on a CPU: how long it takes to open, and how much memory it takes.

    python benchmarks/published_llama.py path/to/a/folder            # writes it there first: 1.2 GB of random weights
    python benchmarks/published_llama.py path/to/a/folder --layers 4

The folder is of the Qwen3 type (`a2d-qwen3`, bfloat16, as dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1 is laid out, without a
tokenizer). Each opening is a process of its own, in which one forward pass over 64 tokens follows.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

SHAPE = {"hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
CONFIG = SHAPE | {"model_type": "a2d-qwen3", "vocab_size": 151_936, "max_position_embeddings": 32_768, "rope_theta": 1e6}
CONFIG |= {"rms_norm_eps": 1e-6, "tie_word_embeddings": True, "mask_token_id": 151_669, "eos_token_id": 151_645}
OPENING = """
import json, sys, time
import torch
import unnoise
def resident():
    lines = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return {name: int(lines[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM")}
before = resident()["VmRSS"]
start, busy = time.perf_counter(), time.process_time()
model = unnoise.load(sys.argv[1])
opened, busy, after = time.perf_counter() - start, time.process_time() - busy, resident()["VmRSS"]
x = torch.full((1, 64), model.codec.vocab)
where = torch.zeros_like(x, dtype=torch.bool)
where[0, :4] = True
with torch.no_grad():
    start = time.perf_counter()
    model.network(x, None, where)
    forward = time.perf_counter() - start
found = {"open_s": opened, "open_cpu_s": busy, "forward_s": forward, "before": before, "opened": after, **resident()}
print(json.dumps(found | {"parameters": model.num_parameters}))
"""


def write(folder: Path, layers: int) -> None:
    """Random weights in bfloat16, as they are published: one file."""
    folder.mkdir(parents=True, exist_ok=True)
    width, hidden, size = (CONFIG[name] for name in ("hidden_size", "intermediate_size", "head_dim"))
    queries, keys = size * CONFIG["num_attention_heads"], size * CONFIG["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": (CONFIG["vocab_size"], width), "model.norm.weight": (width,)}
    layer = {"self_attn.q_proj": (queries, width), "self_attn.k_proj": (keys, width), "self_attn.v_proj": (keys, width)}
    layer |= {"self_attn.o_proj": (width, queries), "self_attn.q_norm": (size,), "self_attn.k_norm": (size,)}
    layer |= {"mlp.gate_proj": (hidden, width), "mlp.up_proj": (hidden, width), "mlp.down_proj": (width, hidden)}
    layer |= {"input_layernorm": (width,), "post_attention_layernorm": (width,)}
    shapes |= {f"model.layers.{i}.{name}.weight": shape for i in range(layers) for name, shape in layer.items()}
    generator = torch.Generator().manual_seed(0)
    weights = {name: (torch.randn(shape, generator=generator) * 0.02).bfloat16() for name, shape in shapes.items()}
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers}))


def main() -> None:
    """Write the folder unless it is there, open it three times, print what each took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    if not (options.folder / "config.json").exists():
        write(options.folder, options.layers)
    weights = (options.folder / "model.safetensors").stat().st_size
    for _ in range(options.times):
        command = [sys.executable, "-c", OPENING, str(options.folder)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        share = {name: (found[key] - found["before"]) / weights for name, key in (("opened", "opened"), ("most", "VmHWM"))}
        print(
            f"{found['parameters'] / 1e6:.0f} M parameters, {weights / 1e9:.2f} GB: opened in {found['open_s']:.2f} s "
            f"({found['open_cpu_s']:.2f} s of a core), "
            f"{share['opened']:.3f} x the weights resident; 64 tokens read in {found['forward_s']:.2f} s, "
            f"{share['most']:.3f} x at most (beyond {found['before'] / 1e6:.0f} MB of Python and torch)"
        )


if __name__ == "__main__":
    main()
