"""The model `unnoise` of lm-evaluation-harness (needs the extra `eval`).

`python -m unnoise.evaluation.lm_eval_model …` runs the command of that package with this model registered:
`--model unnoise --model_args model=runs/first,draws=64 --tasks …`.
"""

import importlib
from typing import Any

import torch

from unnoise.evaluation.harness import NEW_TOKENS, Answer, Continuation, HarnessModel, HarnessOptions
from unnoise.model.io import load

NAME = "unnoise"


class UnnoiseLM:
    """The interface that the harness expects of a model.

    model: loaded model, or anything that `unnoise.load` accepts.
    options: fields of `HarnessOptions`.
    """

    def __init__(
        self, model: Any, *, device: str | None = None, batch_size: Any = None, max_batch_size: Any = None, **options: Any
    ):
        super().__init__()
        opened = load(model) if isinstance(model, str) else model
        if device is None or (device.startswith("cuda") and not torch.cuda.is_available()):  # the harness passes cuda:0
            device = "cpu"
        self.asked = HarnessModel(opened.to(device), HarnessOptions(**options))
        self.answers: list[Answer] = []

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Return minus a bound on −log p(answer | prompt), and whether the answer is greedy."""
        found = self.asked.loglikelihood([one.args for one in requests])
        self.answers += found
        return [(one.log_p, one.greedy) for one in found]

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """Return minus the bound of each text."""
        return [one.log_p for one in self.asked.rolling([one.args[0] for one in requests])]

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """Sample a continuation of each prompt, up to one of the strings `until`."""
        return self.asked.generate([_continuation(*one.args) for one in requests])


def _continuation(prompt: str, options: dict[str, Any]) -> Continuation:
    stops = options.get("until") or []
    tokens = options.get("max_gen_toks") or options.get("max_tokens") or NEW_TOKENS
    temperature = float(options.get("temperature") or 0.0) if options.get("do_sample", True) else 0.0
    return Continuation(prompt, tuple([stops] if isinstance(stops, str) else stops), int(tokens), temperature)


def registered() -> Any:
    """Register the model `unnoise` with the harness and return its class."""
    try:
        model: Any = importlib.import_module("lm_eval.api.model")
        registry: Any = importlib.import_module("lm_eval.api.registry")
        importlib.import_module("lm_eval.models")  # the harness must register its own models first
    except ModuleNotFoundError as error:
        raise ValueError(f"the harness needs lm-eval ({error}): pip install 'unnoise[eval]'") from error
    if NAME in registry.model_registry:
        return registry.get_model(NAME)
    return registry.register_model(NAME)(type("HarnessLM", (UnnoiseLM, model.LM), {}))


if __name__ == "__main__":
    registered()
    importlib.import_module("lm_eval.__main__").cli_evaluate()
