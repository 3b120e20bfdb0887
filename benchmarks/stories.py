"""How good the stories of a model are, beside real ones: a judge that did not train it, the entropy, and lengths.

    python benchmarks/stories.py path/to/stories --model stories            # needs the extra eval (SmolLM2)
    python benchmarks/stories.py path/to/stories --model stories --show 20  # twenty of them, as they came

Perplexity is the judge's, for each of its tokens; entropy is that of single characters, and of words. Real stories are as many
of the test part.
"""

import argparse
import math
import statistics
from collections import Counter
from collections.abc import Sequence

import unnoise
from unnoise.data.corpus import corpus
from unnoise.evaluation.generative import char_entropy, distinct_n
from unnoise.model.sampling_options import SamplingOptions


def word_entropy(texts: Sequence[str]) -> float:
    """Bits of the distribution of words."""
    counts = Counter(" ".join(texts).split())
    total = sum(counts.values())
    return -sum(n / total * math.log2(n / total) for n in counts.values())


def row(name: str, texts: Sequence[str], judge: unnoise.Model | None) -> str:
    """One line of the table."""
    figures = [f"{char_entropy(texts):.3f}", f"{word_entropy(texts):.3f}", f"{distinct_n(texts, 1):.3f}"]
    if judge is not None:
        tokens = sum(len(judge.codec.encode(text)) for text in texts)
        figures.insert(0, f"{math.exp(judge.score(texts).nats / tokens):.2f}")
    figures.append(f"{statistics.mean(map(len, texts)):.0f}")
    return f"| {name} | {' | '.join(figures)} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--model", default="stories")
    parser.add_argument("--num-samples", type=int, default=200)
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--sampler")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=0, help="print so many, and judge none")
    given = parser.parse_args()
    model = unnoise.load(given.model)
    options = {"sampler": given.sampler, "temperature": given.temperature, "top_p": given.top_p, "seed": given.seed}
    texts = model.generate(given.show or given.num_samples, **SamplingOptions.of(options).__dict__)  # pyright: ignore
    if given.show:
        for text in texts:
            print(f"> {text.strip()}\n")
        raise SystemExit
    source = corpus(given.data)
    real = [model.codec.decode([t for t in one if t >= 0]) for one in model.texts(source, "test").windows(len(texts)).tolist()]
    try:
        judge = unnoise.load("smollm2")
    except ValueError as error:
        print(error)
        judge = None
    print(f"| texts | {'perplexity | ' if judge else ''}entropy | of words | distinct words | characters |")
    print(f"|---|{'---|' * (5 if judge else 4)}")
    print(row("real", real, judge), flush=True)
    print(row(given.model, [text for text in texts if text.strip()], judge))
