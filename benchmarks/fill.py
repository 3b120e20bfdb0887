"""How often a blanked word is found: a model's first guess and its first five, beside a 5-gram baseline that sees both sides.

    python benchmarks/fill.py path/to/stories --model runs/stories
    python benchmarks/fill.py path/to/text8 --model wiki --beside wiki-ar
    python benchmarks/fill.py --phrases --model wiki --beside wiki-ar

The corpus is a folder with train and test. From its test part come 300 passages, and in each one content word of at least four
letters is blanked by [WORD]; seed and stop words are fixed. A passage is at most 64 words before the blank and 32 after it,
about 128 tokens (`--around 16 8` for shorter ones); `--split valid` is for choosing, so that the test part is not looked at.
The baseline counts n-grams of words in the train part and ranks every word w by stupid backoff (Brants et al. 2007): the score
of w after the four words before it, and of each of the four after it with w in their context. `--phrases` asks for the blanked
word of thirty set phrases instead.
"""

import argparse
import math
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import unnoise
from unnoise.apps.filling import fill
from unnoise.data.corpus import Corpus, corpus

PASSAGES = 300
AROUND = 64, 32  # words of a passage before and after the blank
ORDER = 5
BACKOFF = 0.4
FREQUENT = 2000  # words that the baseline considers everywhere
WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")
STOP_WORDS = """
    about above after again against also although always among another around back because been before being below
    between both came come could does doing done down during each either else even ever every from gave given gone have
    having here hers into itself just less like made make many more most much must near never next none only onto other
    over said same seem shall should since some such take than that their them then there these they this those though
    through thus together took toward under until upon used using very want well went were what when where whether which
    while whom whose will with within without would your yours zero four five seven eight nine
"""
PHRASES = """
    second world [war]
    united [states] of america
    the capital of [france] is paris
    the [president] of the united states
    the roman [empire] was one of the largest
    the prime [minister] of the united kingdom
    the university of [california] at berkeley
    the battle of [britain] in one nine four zero
    the [population] of the city is one million
    the [industrial] revolution
    he was born in [london] england
    the new [york] times
    the [soviet] union
    the nobel [prize] in physics
    the european [union]
    the house of [representatives]
    the supreme [court] of the united states
    the speed of [light] in a vacuum
    the theory of [evolution] by natural selection
    charles [darwin] on the origin of species
    albert [einstein] s theory of relativity
    the middle [ages]
    the old [testament]
    the pacific [ocean]
    the roman [catholic] church
    the official [language] of the country
    the american [civil] war
    the twentieth [century]
    the periodic [table] of the elements
    it is also [known] as the
"""


class Passage(NamedTuple):
    """A text with one [WORD], and what stood there."""

    text: str
    word: str


Guess = Callable[[Passage], list[str]]


def passages(texts: list[str], count: int, around: tuple[int, int] = AROUND, seed: int = 0) -> list[Passage]:
    """Passages of random texts, each with one content word blanked; from one long text, at random places."""
    draws = random.Random(seed)
    found: list[Passage] = []
    while len(found) < count:
        text = draws.choice(texts)
        start = draws.randrange(max(1, len(text) - 4000))
        piece = text[start : start + 4000]
        words = list(re.finditer(r"\S+", piece))[1:-1]
        content = [i for i, word in enumerate(words) if is_content(word.group())]
        if not content:
            continue
        at = draws.choice(content)
        first, last = words[max(0, at - around[0])], words[min(len(words) - 1, at + around[1])]
        bare = re.search(r"[a-z]+", words[at].group())
        assert bare is not None
        begin, end = words[at].start() + bare.start(), words[at].start() + bare.end()
        found.append(Passage(f"{piece[first.start() : begin]}[WORD]{piece[end : last.end()]}", bare.group()))
    return found


def is_content(word: str) -> bool:
    """Whether a word is one to blank: lower-case letters, at least four, with at most a mark after it, and no stop word."""
    bare = re.fullmatch(r"([a-z]{4,})[.,!?;:]?", word)
    return bare is not None and bare[1] not in STOP_WORDS.split()


def phrases() -> list[Passage]:
    """The set phrases."""
    lines = [line.strip() for line in PHRASES.strip().splitlines()]
    return [Passage(re.sub(r"\[\w+\]", "[WORD]", line), re.findall(r"\[(\w+)\]", line)[0]) for line in lines]


class Baseline:
    """n-grams of words with a hole: how often each word stands between a words before and b after, a + b ≤ 4, for the contexts
    of the passages alone, so that one reading of the train part is enough."""

    def __init__(self, train: list[str], cases: list[Passage]):
        self.holes: dict[tuple[tuple[str, ...], tuple[str, ...]], Counter[str]] = {}
        lefts: set[tuple[str, ...]] = set()
        rights: set[tuple[str, ...]] = set()
        for case in cases:
            before, after = sides(case)
            for a in range(ORDER):
                for b in range(ORDER - a):
                    if a <= len(before) and b <= len(after):
                        left, right = before[len(before) - a :], after[:b]
                        self.holes.setdefault((left, right), Counter())
                        lefts.add(left)
                        rights.add(right)
        for text in train:
            self._read(WORD.findall(text.lower()), lefts, rights)
        self.counts = self.holes[(), ()]
        self.totals = {left: counter.total() for (left, right), counter in self.holes.items() if not right}
        self.frequent = [word for word, _ in self.counts.most_common(FREQUENT)]

    def _read(self, words: list[str], lefts: set[tuple[str, ...]], rights: set[tuple[str, ...]]) -> None:
        holes = self.holes
        for i, word in enumerate(words):
            before: list[tuple[str, ...]] = [()]
            after: list[tuple[str, ...]] = [()]
            for a in range(1, min(ORDER, i + 1)):
                left = tuple(words[i - a : i])
                if left not in lefts:
                    break
                before.append(left)
            for b in range(1, ORDER):
                right = tuple(words[i + 1 : i + 1 + b])
                if len(right) < b or right not in rights:
                    break
                after.append(right)
            for left in before:
                for right in after[: ORDER - len(left)]:
                    if (counter := holes.get((left, right))) is not None:
                        counter[word] += 1

    def guesses(self, case: Passage) -> list[str]:
        """The five best words."""
        before, after = sides(case)
        seen = {*self.holes[before[-1:], ()], *self.holes[(), after[:1]], *self.frequent}
        return sorted(seen, key=lambda word: -self.score(word, before, after))[:5]

    def score(self, word: str, before: tuple[str, ...], after: tuple[str, ...]) -> float:
        """log of the product of five backed-off scores: of the word, and of each word after it."""
        total = 0.0
        for b in range(len(after) + 1):
            most = min(ORDER - 1 - b, len(before))
            for a in range(most, -1, -1):
                left = before[len(before) - a :]
                seen = self.holes[left, after[:b]][word]
                context = self.holes[left, after[: b - 1]][word] if b else self.totals[left]
                if seen and context:
                    total += math.log(seen / context) + (most - a) * math.log(BACKOFF)
                    break
            else:  # the word says nothing about this one
                usual = max(1, self.counts[after[b - 1]]) if b else 1
                total += math.log(usual / self.totals[()]) + (most + 1) * math.log(BACKOFF)
        return total


def sides(case: Passage) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The four words before and after the blank."""
    before, after = case.text.lower().split("[word]")
    return tuple(WORD.findall(before)[-(ORDER - 1) :]), tuple(WORD.findall(after)[: ORDER - 1])


def guesses_of(model: unnoise.Model) -> Guess:
    """A model's five best words."""
    return lambda case: [word.lower() for word, _ in fill(model, case.text, 5)[0]]


def measure(name: str, cases: list[Passage], guess: Guess, show: bool) -> None:
    """Print how often the word is the first guess, and among five."""
    start = time.perf_counter()
    first = five = 0
    for case in cases:
        found = guess(case)
        first, five = first + (found[:1] == [case.word]), five + (case.word in found[:5])
        if show:
            print(f"  {case.text.replace('[WORD]', f'[{case.word}]')}: {', '.join(found)}")
    spread = 100 * math.sqrt(five / len(cases) * (1 - five / len(cases)) / len(cases))
    print(
        f"{name:24s} first {first:3d} of {len(cases)} ({100 * first / len(cases):.1f} %)   among five {five:3d} "
        f"({100 * five / len(cases):.1f} ± {spread:.1f} %)   {time.perf_counter() - start:.0f} s",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data", nargs="?")
    parser.add_argument("--model", default="wiki")
    parser.add_argument("--beside")
    parser.add_argument("--phrases", action="store_true")
    parser.add_argument("--passages", type=int, default=PASSAGES)
    parser.add_argument("--around", type=int, nargs=2, default=AROUND, metavar=("BEFORE", "AFTER"))
    parser.add_argument("--split", default="test")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    source = corpus(options.data) if options.data else None
    if not isinstance(source, Corpus) and not (source is None and options.phrases):
        parser.error("give a folder with train and test as text, or --phrases")
    if options.phrases or source is None:
        cases = phrases()
    else:
        texts = [line for text in source.documents[options.split] for line in text.splitlines() if line]
        cases = passages(texts, options.passages, tuple(options.around))
    if source is not None:
        measure("5-grams", cases, Baseline(source.documents["train"], cases).guesses, options.show)
    for name in filter(None, (options.model, options.beside)):
        measure(name, cases, guesses_of(unnoise.load(name)), options.show)
