"""Tasks of lm-evaluation-harness, by name or from local files of JSON lines."""

import gzip
import importlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from unnoise.data.splits import ALIASES, SPLITS
from unnoise.evaluation.harness import HarnessOptions
from unnoise.evaluation.lm_eval_model import registered
from unnoise.model.model import Model

RESAMPLES = 1000  # bootstrap samples for the standard error of some metrics


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
