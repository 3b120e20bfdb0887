"""`unnoise harness`: tasks of lm-evaluation-harness."""

import json
from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import arg

from unnoise.cli.command_base import Device, Json, ModelName, Seed, at_least, open_model


@dataclass
class HarnessCommand:
    """Run tasks of lm-evaluation-harness (needs the extra `eval`).

    Answers are scored by a bound that never noises the prompt. The bound is exact where that is cheap.

    Example: unnoise harness --model runs/first --tasks path/to/lambada_test.jsonl --limit 100
    """

    tasks: Annotated[
        tuple[str, ...],
        arg(help="Names of tasks, or .jsonl files with records of `text` (LAMBADA) or of `question`, `choices` and `answer`."),
    ]
    model: ModelName = None
    draws: Annotated[
        int, arg(help="Draws of the bound of each answer. Exact answers (ar, blocks of one token, one token) take one.")
    ] = 128
    limit: Annotated[int | None, arg(help="Maximum number of documents of each task.")] = None
    fewshot: Annotated[int | None, arg(help="Examples before each question; default: the task's own number.")] = None
    no_greedy: Annotated[
        bool, arg(help="Do not check whether the model would generate answers of several tokens (acc of LAMBADA).")
    ] = False
    steps: Annotated[int | None, arg(help="Network calls per generated sample.")] = None
    sampler: Annotated[str | None, arg(help="Sampler of generated samples; default: the model's own.")] = None
    seed: Seed = 0
    device: Device = "auto"
    as_json: Json = False

    def run(self) -> int:
        from unnoise.apps.harness.harness import HarnessOptions
        from unnoise.apps.harness.tasks import run_harness

        if not self.tasks:
            raise ValueError("specify at least one task, for example --tasks path/to/lambada_test.jsonl")
        at_least(1, draws=self.draws, limit=self.limit, steps=self.steps)
        options = HarnessOptions(
            draws=self.draws,
            seed=self.seed,
            check_greedy=not self.no_greedy,
            steps=self.steps,
            sampler=self.sampler,
        )
        model = open_model(self.model, self.device)
        found = run_harness(model, self.tasks, options, limit=self.limit, fewshot=self.fewshot)
        print(json.dumps(found, default=str) if self.as_json else _described(found))
        return 0


def _described(found: dict[str, Any]) -> str:
    lines = []
    for task, metrics in found["results"].items():
        for name, value in metrics.items():
            if not isinstance(value, float | int) or "stderr" in name or name in ("alias", "sample_len"):
                continue
            plain, _, filtered = name.partition(",")
            error = metrics.get(f"{plain}_stderr,{filtered}")
            spread = f" ± {_short(error)} over documents" if isinstance(error, float) else ""
            lines.append(f"{task:20s} {plain:12s} {_short(value)}{spread}")
    answers = found["answers"]
    if answers["asked"]:
        drawn = answers["asked"] - answers["exact"]
        lines.append(f"{answers['asked']} answers, {answers['exact']} of them exact")
        if drawn:
            lines[-1] += f", {drawn} from {answers['draws']} draws of the bound (± {answers['mean_stderr_nats']:.3f} nats)"
    if answers["shortened"]:
        lines.append(f"{answers['shortened']} prompts were longer than the model's length and lost their beginning")
    return "\n".join(lines)


def _short(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 1e5 else f"{value:.3g}"
