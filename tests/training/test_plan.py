"""`unnoise plan` agrees with torch: shards, saved activations, operations, calls of the network."""

import json
import math
import shlex
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import unnoise
from unnoise.cli.main import main
from unnoise.method_table import method
from unnoise.network.layers import Dropout
from unnoise.rng import RowGenerator
from unnoise.training.costs import Work, activation_bytes, measured_work, newton_schulz_flops, step_flops
from unnoise.training.optim import orthogonal, split
from unnoise.training.plan import Devices, Plan, meta_network, plan, vocabulary
from unnoise.training.training_options import RunOptions

GIB = 2**30
DEVICES = Devices(8, 1e15, 80 * GIB, 0.5)


def planned(devices: Devices = DEVICES, vocab: int = 50_257, **changes: Any) -> Plan:
    """Plan a small run."""
    options: dict[str, Any] = {"method": "mdlm", "size": "base", "length": 128, "batch": 64, "steps": 100, "optimizer": "adamw"}
    return plan(RunOptions(**{**options, **changes}), devices, vocab)


# ---- memory -----------------------------------------------------------------------------------------------------------

SHARDED = """
import json, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from unnoise.method_table import method
from unnoise.training.training_options import RunOptions
from unnoise.training.parallel import shard_network
from unnoise.training.plan import meta_network

dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=64)
mesh = init_device_mesh("cpu", (64,))
options = RunOptions(method="mdlm", size="base", width=2304, depth=12, heads=12, length=1024)
network, _ = meta_network(options, method(options.method), 50_257)
shard_network(network, mesh=mesh)
weights = list(network.parameters())
adam = torch.optim.AdamW(weights, foreach=False)
for weight in weights:
    weight.grad = torch.zeros_like(weight)
adam.step()
bytes_of = lambda tensors: sum(one.to_local().numel() * one.to_local().element_size() for one in tensors)
moments = [value for state in adam.state.values() for value in state.values() if value.dim()]
print(json.dumps([sum(w.numel() for w in weights), bytes_of(weights), bytes_of(w.grad for w in weights), bytes_of(moments)]))
"""


def test_the_shards_of_a_billion_weights() -> None:
    """FSDP2's own shards on 64 fake devices, in another process."""
    done = subprocess.run([sys.executable, "-c", SHARDED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    parameters, *wanted = json.loads(done.stdout)
    devices = Devices(64, 1e15, 80 * GIB, 0.4)
    found = planned(devices, width=2304, depth=12, heads=12, shard=True)
    assert found.parameters == parameters and 0.9e9 < parameters < 1.1e9
    assert [found.memory[part] for part in ("weights", "gradients", "moments")] == pytest.approx(wanted, rel=0.001)
    replicated = planned(devices, width=2304, depth=12, heads=12)
    assert replicated.memory["moments"] == 8 * parameters and found.memory["moments"] < 8 * parameters / 60


def test_weights_gradients_moments_and_buffers() -> None:
    found = planned(ema_decay=0.9)
    p = found.parameters
    assert [found.memory[part] for part in ("weights", "gradients", "moments", "averaged weights")] == [
        4 * p,
        4 * p,
        8 * p,
        4 * p,
    ]
    assert "averaged weights" not in planned().memory
    network, _ = meta_network(RunOptions(method="mdlm", size="base", length=128), method("mdlm"), 50_257)
    matrices = sum(weight.numel() for weight in split(network)[0].values())
    linear = matrices + network.head.weight.numel()  # pyright: ignore
    assert planned(optimizer="muon").memory["moments"] == 4 * matrices + 8 * (p - matrices)
    assert found.memory["buffers"] == 2 * linear + 4 * p and planned(precision="float32").memory["buffers"] == 4 * p
    assert planned(Devices(1, 1e15, GIB, 1.0)).memory["buffers"] == 2 * linear
    of_process = planned(method="gaussian:learned=true,width=16")
    assert of_process.parameters - planned(method="gaussian:width=16").parameters == 2 + 3 * 32  # the ends and the shape of γ


def test_parameters_are_those_of_the_model() -> None:
    for name in ("mdlm", "genmd4", "flexmdm", "gaussian:self_condition=true", "ar"):
        model = unnoise.Model.build(name, "text8", length=16, size="nano")
        learned = sum(w.numel() for module in (model.network, model.process) for w in module.parameters() if w.requires_grad)
        assert planned(method=name, vocab=27, size="nano", length=16).parameters == learned


def saved_bytes(network: unnoise.Transformer, batch: int, length: int, dropout: float) -> int:
    """Return the bytes that autograd keeps of a forward pass, weights excluded."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*network.parameters(), *network.buffers())}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    keys = RowGenerator(0, torch.arange(batch)).next_keys()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = network(
            torch.randint(9, (batch, length)), torch.rand(batch), dropout=Dropout(dropout, keys) if dropout else None
        )
    assert isinstance(output, torch.Tensor)
    return sum(tensor.untyped_storage().nbytes() for address, tensor in kept.items() if address not in own)


@pytest.mark.parametrize(
    ("fields", "dropout"),
    [({}, 0.0), ({"time": True}, 0.0), ({"attention_every": 2}, 0.0), ({"time": True}, 0.1), ({"pointer": True}, 0.0)],
)
def test_activations_are_what_autograd_keeps(fields: dict[str, Any], dropout: float) -> None:
    network = unnoise.Transformer(inputs=10, outputs=9, length=256, width=256, depth=4, heads=2, **fields)
    batch, length = 2, 256
    found, checkpointed = activation_bytes(network, "float32", dropout > 0)
    assert found is not None and checkpointed is not None
    assert saved_bytes(network, batch, length, dropout) == pytest.approx(found * batch * length, rel=0.03)
    assert checkpointed < 0.45 * found


def test_what_fits() -> None:
    one = planned(device_batch=1, method="md4")
    fixed = sum(size for part, size in one.memory.items() if part not in ("activations", "head and loss"))
    assert one.parts == 8 and one.texts_per_device == 8 and one.fits
    largest = one.largest_device_batch
    assert largest is not None and largest > 100
    per_text = one.memory["activations"] + one.memory["head and loss"]
    assert largest * per_text <= 80 * GIB - fixed < (largest + 1) * per_text
    assert planned(method="md4", batch=8 * largest).fits and not planned(method="md4", batch=8 * (largest + 1)).fits
    small = Devices(8, 1e15, fixed / 2, 0.5)
    assert planned(small, method="md4").largest_device_batch == 0 and not planned(small, method="md4").fits
    checkpointed = planned(method="md4", checkpoint_activations=True)
    assert checkpointed.memory_total == pytest.approx(planned(method="md4").memory_total_checkpointed)


# ---- work -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, {"time": True}, {"attention_every": 2}, {"pointer": True}])
def test_operations_are_what_torch_counts(fields: dict[str, Any]) -> None:
    network = unnoise.Transformer(inputs=10, outputs=9, length=32, width=32, depth=4, heads=2, **fields)
    x, t = torch.randint(9, (3, 32)), torch.rand(3)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        output = network(x, t)
        assert isinstance(output, torch.Tensor)
        output.sum().backward()
    counted = sum(n for kind, n in counter.get_flop_counts()["Global"].items() if "convolution" not in str(kind))
    found = step_flops(network, Work(1, 1, 0, 0, 1, 1), 3, 32)
    assert sum(found.values()) == pytest.approx(counted, rel=0.02)
    twice = step_flops(network, Work(1, 1, 0, 0, 1, 1), 3, 32, checkpointing=True)
    assert twice["blocks"] == pytest.approx(found["blocks"] * 4 / 3) and twice["head"] == found["head"]


def test_muons_operations() -> None:
    with FlopCounterMode(display=False) as counter:
        for shape in ((12, 20), (20, 12), (12, 48), (24, 12)):
            orthogonal(torch.randn(shape))
    wanted = 2 * newton_schulz_flops((12, 20)) + newton_schulz_flops((48, 12)) + newton_schulz_flops((12, 24))
    assert counter.get_total_flops() == wanted


def test_how_often_the_network_is_called() -> None:
    """Count by hand: D3PM's hybrid loss needs all positions, GenMD4 two draws, self-conditioning one more half the time."""
    for schedule, share in (("linear", 1 / 2), ("cosine", 2 / math.pi)):  # ∫ (1 − α) dt
        plain = measured_work(f"md4:schedule={schedule}", "paper")
        assert plain.read == plain.most_read == 1 and plain.asked == pytest.approx(share, abs=0.02)
    assert measured_work("d3pm-absorb", "paper").asked == 1 and measured_work("multinomial", "paper").asked == 1
    assert measured_work("genmd4", "paper").read == 2 and measured_work("genmd4", "paper").asked == pytest.approx(1, abs=0.03)
    assert measured_work("gaussian:self_condition=true", "paper").read_without_gradient == pytest.approx(0.5, abs=0.2)
    assert measured_work("mdlm", "paper").most_read == 2 and measured_work("mdlm", "paper").read < 1.2  # the boundary term
    offset = measured_work("md4:offset=1e-4,schedule=linear", "paper")
    assert offset.read < 1.2 and offset.asked / offset.read == pytest.approx(0.53, abs=0.03)
    assert measured_work("mdlm", "fast").asked < 0.45  # few masks first


def test_time_and_tokens() -> None:
    found = planned(method="d3pm-absorb", accumulate=2)
    assert (
        found.parts == 2
        and found.device_batch == 4
        and found.tokens_per_step == 64 * 128
        and found.tokens == 100 * found.tokens_per_step
    )
    total = sum(found.flops_per_step.values())
    assert (
        found.seconds_per_step == pytest.approx(total / (8 * 1e15 * 0.5))
        and found.days == found.seconds_per_step * 100 / 86_400
    )
    six = 6 * 12 * 12 * 768**2 * found.tokens_per_step
    assert found.flops_per_step["blocks"] == pytest.approx(six) and found.head_share == 1
    assert found.flops_per_step["attention"] == 12 * 12 * 768 * 128 * found.tokens_per_step
    by_clock = planned(steps=None, minutes=3.0)
    assert by_clock.tokens is None and by_clock.days is None
    assert planned(method="ar").flops_per_step["attention"] == planned(method="d3pm-absorb").flops_per_step["attention"] / 2


def test_the_device_with_most_texts_counts() -> None:
    """60 texts on 8 devices: some have 8 and some 7, and 8 must fit; in parts of 3 that are 3 parts."""
    found, even = planned(batch=60), planned(batch=64)
    assert found.texts_per_device == found.device_batch == 8 and found.texts_per_update == 60
    assert found.memory == even.memory and found.memory_total == even.memory_total
    assert planned(batch=60, device_batch=3).parts == 3 and planned(batch=57, device_batch=4).parts == 2


def test_traffic() -> None:
    p = planned().parameters
    assert planned().traffic == {"all-reduce": 2 * 7 / 8 * 4 * p}
    sharded = planned(shard=True, device_batch=4)
    assert sharded.parts == 2 and sharded.traffic == {"all-gather": 2 * 2 * 7 / 8 * 2 * p, "reduce-scatter": 7 / 8 * 4 * p}
    assert planned(shard=True, precision="float32").traffic["all-gather"] == 2 * 7 / 8 * 4 * p
    muon = planned(optimizer="muon")
    assert muon.traffic["muon"] == 7 / 8 * 4 * 12 * 12 * 768**2
    assert set(planned(Devices(1, 1e15, GIB, 1.0)).traffic.values()) == {0}


def test_images_and_vocabularies() -> None:
    options = RunOptions(method="md4", size="nano", steps=1)
    assert plan(options, DEVICES, 256, (32, 32, 3)).tokens_per_step == 8 * 3072
    assert [vocabulary(name) for name in ("text8", "bytes", "bpe", "bpe-4096", "gpt2:nowhere")] == [27, 256, 2048, 4096, 50_257]
    with pytest.raises(ValueError, match="the vocabulary of the codec chars depends on the data: give --vocab"):
        vocabulary("chars")


# ---- the command ------------------------------------------------------------------------------------------------------


def test_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    line = "plan mdlm --size nano --codec text8 --length 16 --steps 10 --gpus 2 --gpu a100 --optimizer adamw --loss paper"
    assert main(shlex.split(line)) == 0
    shown = capsys.readouterr().out
    for words in (
        "mdlm on 2 × a100, 80 GiB, bf16, replicated",
        "activations",
        "all-reduce",
        "evaluated at 5",
        "tokens in total",
        "days",
    ):
        assert words in shown, words
    assert main(shlex.split(f"{line} --flops 1e12 --memory 1 --utilisation 0.5 --shard --device-batch 2 --json")) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["flops_per_second"] == 1e12 and found["memory_gib"] == 1 and found["device_batch"] == 2 and found["parts"] == 2
    assert found["seconds_per_step"] == pytest.approx(sum(found["flops_per_step"].values()) / (2 * 1e12 * 0.5))
    assert main(shlex.split("plan mdlm --size base --codec gpt2:none --length 1024 --batch 4096 --steps 1")) == 0
    assert "more than the 80 GiB available" in capsys.readouterr().out


def test_a_network_of_ones_own_has_unknown_activations(capsys: pytest.CaptureFixture[str]) -> None:
    class Table(torch.nn.Module):
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.config = {"inputs": inputs, "outputs": outputs}
            self.table = torch.nn.Embedding(inputs, outputs)

        def forward(self, x: Any, t: Any = None, where: Any = None) -> Any:
            return self.table(x)

    unnoise.register("network", "plan-table")(Table)
    assert main(shlex.split("plan mdlm --network plan-table --codec text8 --steps 3")) == 0
    assert "756" in (shown := capsys.readouterr().out) and "which are known only for the Transformer" in shown
