"""Another device where there is none: tensors that hold CPU values, say that they are elsewhere, and refuse to be mixed with
CPU tensors, as CUDA's do. Run as a script, since it patches torch: writes, reads and trains with the methods named, there.
"""

import sys
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

ELSEWHERE = torch.device("meta")
aten = torch.ops.aten
COPIES = {aten._to_copy.default, aten.copy_.default}
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}


class Remote(torch.Tensor):
    """A tensor that is elsewhere; `here` has its values."""

    here: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, here: torch.Tensor) -> "Remote":
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            here.size(),
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            layout=here.layout,
            device=ELSEWHERE,
            requires_grad=here.requires_grad,
        )
        made.here = here.detach()
        return made

    def tolist(self) -> Any:
        return self.here.tolist()

    def item(self) -> Any:
        return self.here.item()

    def numpy(self, **_: Any) -> Any:
        raise TypeError("a tensor that is elsewhere has no numpy array")

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def __bool__(self) -> bool:
        return bool(self.here)

    def __int__(self) -> int:
        return int(self.here)

    def __float__(self) -> float:
        return float(self.here)

    def __index__(self) -> int:
        return self.here.__index__()

    def __getitem__(self, index: Any) -> torch.Tensor:
        return super().__getitem__(plain_tensor(index).to(ELSEWHERE) if isinstance(index, list) else index)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


class Watching(TorchDispatchMode):
    """All tensor work goes through `computed`."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(func, args, kwargs or {})


def computed(func: Any, args: Any, kwargs: Any) -> Any:
    """Compute a result on the device of its arguments; raise RuntimeError if they are on two devices."""
    tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
    remote = any(isinstance(tensor, Remote) for tensor in tensors)
    goes_there = remote
    if kwargs.get("device") is not None:
        goes_there = torch.device(kwargs["device"]).type == ELSEWHERE.type
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if remote and func not in COPIES:
        local = [tensor for tensor in tensors if not isinstance(tensor, Remote) and tensor.dim() > 0]
        if func in INDEXING:  # what is here may index what is elsewhere, but not the other way round
            local = [] if isinstance(args[0], Remote) else tensors
        if local:
            raise RuntimeError(f"{func} mixes tensors of two devices: {[tuple(tensor.shape) for tensor in tensors]}")
    plain_args, plain_kwargs = tree_map(lambda v: v.here if isinstance(v, Remote) else v, (args, kwargs))
    out = func(*plain_args, **plain_kwargs)
    name = func._schema.name
    if func is aten.copy_.default or (name.endswith("_") and not name.endswith("__")):
        return args[0]
    if func is aten._local_scalar_dense.default or not goes_there:
        return out
    return tree_map(lambda v: Remote(v) if isinstance(v, torch.Tensor) and not isinstance(v, Remote) else v, out)


plain_tensor, plain_as_tensor, PlainGenerator = torch.tensor, torch.as_tensor, torch.Generator


class AnyGenerator:
    """A generator of the CPU's, whatever device is asked for."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return PlainGenerator()


def patch() -> None:
    """Replace the functions of torch that create tensors on a device without the dispatcher."""
    torch.Generator = AnyGenerator  # type: ignore[assignment,misc]
    torch.tensor = lambda *a, device=None, **k: plain_tensor(*a, **k).to(device or "cpu")  # type: ignore[assignment]

    def as_tensor(data: Any, *args: Any, device: Any = None, **kwargs: Any) -> torch.Tensor:
        made = plain_as_tensor(data, *args, **kwargs)
        return made if device is None or made.device == torch.device(device) else made.to(device)

    torch.as_tensor = as_tensor  # type: ignore[assignment]


def use(name: str) -> None:
    """All verbs of a model that is elsewhere."""
    from unnoise import Model
    from unnoise.apps.filling import fill
    from unnoise.data import Text8
    from unnoise.training.trainer import TrainingRun
    from unnoise.training.training_options import TrainingOptions

    with Watching():
        model = Model.build(name, Text8(), length=12, width=16, depth=1, heads=2).to(ELSEWHERE)
        texts = torch.randint(27, (40, 12)) if model.process.variable_length else torch.randint(27, (2000,))
        run = TrainingRun(model, texts, TrainingOptions(steps=2, batch=2, eval_windows=2))
        run.step()
        run.evaluate()
    with torch.no_grad(), Watching():
        model.network.requires_grad_(False)
        model.process.requires_grad_(False)
        for sampler in model.samplers:
            assert len(model.generate(2, steps=4, sampler=sampler)) == 2
        assert model.infill("the [MASK] at", n=2, steps=3)[0].startswith("the ")
        assert model.complete("th", "e", n=2, steps=3)[1].endswith("e")
        if name in ("mdlm", "ar", "flexmdm"):
            assert len(fill(model, "the [WORD] a")) == 1
        assert model.score(["the cat", "sat"], samples=3).nats > 0


if __name__ == "__main__":
    import unnoise

    patch()
    for method in sys.argv[1:] or unnoise.methods():
        use(method)
        print(method, flush=True)
