"""The model `unnoise` of lm-evaluation-harness, and runs of its tasks by name or from local files (needs the extra `eval`).

`python -m unnoise.apps.harness.tasks …` runs the command of that package with this model registered:
`--model unnoise --model_args model=runs/first,draws=64 --tasks …`.
"""

import gzip
import importlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from unnoise.apps.harness.harness import NEW_TOKENS, Answer, Continuation, HarnessModel, HarnessOptions
from unnoise.data.shard_files import ALIASES, SPLITS
from unnoise.model.io import load
from unnoise.model.model import Model

NAME = "unnoise"
RESAMPLES = 1000  # bootstrap samples for the standard error of some metrics


class UnnoiseLM:
    """Interface that the harness expects of a model.

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
        """Return log p of the answer of each request, and whether it is the most probable answer."""
        found = self.asked.loglikelihood([one.args for one in requests])
        self.answers += found
        return [(one.log_p, one.greedy) for one in found]

    def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
        return [one.log_p for one in self.asked.rolling([one.args[0] for one in requests])]

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        return self.asked.generate([_continuation(*one.args) for one in requests])


def _continuation(prompt: str, options: dict[str, Any]) -> Continuation:
    """Return a request to continue a prompt, from the options of the harness."""
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


def local_task(path: Path) -> dict[str, Any]:
    """Return the task of a file.

    Records with `question`, `choices` and `answer` are multiple choice. Records with `text` are LAMBADA: the task is to predict
    the last word.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        first = file.readline()
    try:
        record = json.loads(first)
    except ValueError as error:
        raise ValueError(f"the first line of {path} is not JSON: {error}") from error
    stem = path.name.split(".")[0]
    common = {
        "task": path.parent.name if stem in ALIASES or stem in SPLITS else stem,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(path.resolve())}},
        "test_split": "test",
        "metadata": {"version": 1},
    }
    if isinstance(record, dict) and isinstance(record.get("choices"), list) and isinstance(record.get("answer"), int):
        return common | {
            "output_type": "multiple_choice",
            "doc_to_text": "{{question}}",
            "doc_to_choice": "choices",
            "doc_to_target": "answer",
            "target_delimiter": " ",
            "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
        }
    if isinstance(record, dict) and isinstance(record.get("text"), str):
        return common | {
            "output_type": "loglikelihood",
            "doc_to_text": "{{text.split(' ')[:-1]|join(' ')}}",
            "doc_to_target": "{{' '+text.split(' ')[-1]}}",
            "metric_list": [{"metric": "perplexity"}, {"metric": "acc"}],
        }
    raise ValueError(
        f"{path} needs records with `text` (LAMBADA), or with `question`, `choices` and `answer` (the index of a choice)"
    )


def run_harness(
    model: Model,
    tasks: Sequence[str],
    options: HarnessOptions | None = None,
    *,
    limit: int | None = None,
    fewshot: int | None = None,
) -> dict[str, Any]:
    """Run tasks and return their results, with a summary of the answers and of their standard errors."""
    asked = registered()(model, device=str(model.device), **asdict(options or HarnessOptions()))
    evaluator: Any = importlib.import_module("lm_eval.evaluator")
    named = [local_task(Path(task)) if Path(task).is_file() else task for task in tasks]
    try:
        found = evaluator.simple_evaluate(
            asked, tasks=named, num_fewshot=fewshot, limit=limit, bootstrap_iters=RESAMPLES, log_samples=False
        )
    except (KeyError, OSError) as error:
        raise ValueError(f"the harness cannot run {', '.join(tasks)}: {error}") from error
    errors = [one.stderr for one in asked.answers if not one.exact]
    return {
        "results": found["results"],
        "versions": found.get("versions", {}),
        "answers": {
            "asked": len(asked.answers),
            "exact": sum(one.exact for one in asked.answers),
            "draws": max((one.draws for one in asked.answers), default=0),
            "mean_stderr_nats": sum(errors) / len(errors) if errors else 0.0,
            "shortened": sum(one.shortened for one in asked.answers),
        },
    }


if __name__ == "__main__":
    registered()
    importlib.import_module("lm_eval.__main__").cli_evaluate()
