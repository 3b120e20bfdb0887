"""The model `unnoise` of lm-evaluation-harness; `registered` makes it known there, and needs that package (extra `eval`).

`python -m unnoise.evaluation.lm_eval_model …` is that package's own command with the model registered:
`--model unnoise --model_args model=runs/first,draws=64 --tasks …`.
"""

import importlib
from typing import Any

import torch

from unnoise.evaluation.harness import DRAWS, NEW_TOKENS, Continuation, HarnessModel
from unnoise.model.io import load

NAME = "unnoise"


class UnnoiseLM:
    """What the harness asks a model. model: whatever `unnoise.load` opens, or a loaded model. steps, sampler: how texts that go
    on are written."""

    def __init__(
        self,
        model: Any,
        draws: int = DRAWS,
        check_greedy: bool = True,
        seed: int = 0,
        steps: int | None = None,
        sampler: str | None = None,
        device: str | None = None,
        batch_size: Any = None,
        max_batch_size: Any = None,
    ):
        super().__init__()
        opened = load(model) if isinstance(model, str) else model
        sampling: dict[str, Any] = {"steps": steps, "sampler": sampler}
        if device is None or (
            device.startswith("cuda") and not torch.cuda.is_available()
        ):  # the harness asks for cuda:0 always
            device = "cpu"
        self.asked = HarnessModel(opened.to(device), int(draws), int(seed), bool(check_greedy), sampling)
        self.answers: list[Any] = []  # every `Answer`, for the errors of what was measured

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Minus a bound on −log p(answer | prompt), and whether the model would have written it."""
        found = self.asked.loglikelihood([one.args for one in requests])
        self.answers += found
        return [(one.log_p, one.greedy) for one in found]

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        """Minus the bound of each text."""
        return [one.log_p for one in self.asked.rolling([one.args[0] for one in requests])]

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        """What follows each prompt, up to one of the strings `until`."""
        return self.asked.generate([_continuation(*one.args) for one in requests])


def _continuation(prompt: str, options: dict[str, Any]) -> Continuation:
    stops = options.get("until") or []
    tokens = options.get("max_gen_toks") or options.get("max_tokens") or NEW_TOKENS
    temperature = float(options.get("temperature") or 0.0) if options.get("do_sample", True) else 0.0
    return Continuation(prompt, tuple([stops] if isinstance(stops, str) else stops), int(tokens), temperature)


def registered() -> Any:
    """The same as a model of the harness, under the name `unnoise`; ValueError where the harness is not installed."""
    try:
        model: Any = importlib.import_module("lm_eval.api.model")
        registry: Any = importlib.import_module("lm_eval.api.registry")
        importlib.import_module("lm_eval.models")  # its own models are registered first, or not at all
    except ModuleNotFoundError as error:
        raise ValueError(f"the harness needs lm-eval ({error}): pip install 'unnoise[eval]'") from error
    if NAME in registry.model_registry:
        return registry.get_model(NAME)
    return registry.register_model(NAME)(type("HarnessLM", (UnnoiseLM, model.LM), {}))


if __name__ == "__main__":
    registered()
    importlib.import_module("lm_eval.__main__").cli_evaluate()
