"""Spell checking of real mistakes, compared with a plain baseline: precision, recall, F1 and the share of clean words damaged.

    python benchmarks/spelling.py path/to/spelling --model runs/mdlm

The folder holds Holbrook's tagged passages (mistakes of school children in sentences) and Norvig's first test set (isolated
words). Next to this file are twenty sentences with real-word errors (real_words.txt), and 120 with such errors and sixty with
misspellings by people who did not know the speller (…_unseen.txt). The baseline is Norvig's: a word that is not in the training
vocabulary becomes the most frequent word at edit distance 1.

`--part` takes every fifth passage ("tune") or the other four ("report"). `--fit` prints the weights of `Channel` in
`apps/spelling/channel.py` that maximize the likelihood of the intended words in the first part, and the results of each
strength by cross-validation. `--speed` prints the seconds for growing texts: Holbrook's passages, or those of `--text` (a
file, plain or .gz), and letters without blanks. OMP_NUM_THREADS sets the number of cores.
"""

import argparse
import gzip
import random
import re
import string
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import torch

import unnoise
from unnoise.apps.spelling import correct
from unnoise.apps.spelling.channel import Candidate, Channel
from unnoise.apps.spelling.speller import Edit, Speller
from unnoise.apps.spelling.words import WORD, Words, model_words

PARAGRAPH = (  # the corrupted one of Multinomial Diffusion (arXiv:2102.05379): seven mistakes, and a rare name
    "mexico citi the aztec stadium estadio azteca home of clup amerika is one of the world s largest stadiums with capakity to "
    "seat approximately one one zero zero zero zero fans mexico hosted the football world cup in one nine zeven zero and one "
    "nyne eiggt six"
)
SENTENCES = "real_words.txt", "real_words_unseen.txt", "misspelled_unseen.txt"  # beside this file
TAG = re.compile(r"<ERR targ=([^>]*)>(.*?)</ERR>")


class Passage(NamedTuple):
    text: str
    mistakes: list[tuple[int, int, str]]  # start, stop, what was intended


def holbrook(path: Path, part: str) -> list[Passage]:
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines()]
    passages = []
    for line in lines:
        text, mistakes, last = "", [], 0
        for tag in TAG.finditer(line):
            text += line[last : tag.start()]
            wrong = tag.group(2).strip()
            mistakes.append((len(text), len(text) + len(wrong), tag.group(1).strip()))
            text += wrong
            last = tag.end()
        text += line[last:]
        if WORD.search(text):
            passages.append(Passage(text, mistakes))
    return [passage for i, passage in enumerate(passages) if (i % 5 == 0) == (part == "tune") or part == "all"]


def norvig(path: Path) -> list[tuple[str, str]]:
    found = re.findall(r"'([^']+)'\s*:\s*'([^']*)'", path.read_text())
    return [(wrong, right) for right, wrongs in found for wrong in wrongs.split()]


def baseline(words: Words) -> Callable[[str], list[Edit]]:
    def correct(text: str) -> list[Edit]:
        edits = []
        for match in WORD.finditer(text):
            word = match.group().lower()
            if word in words.counts or "'" in word:
                continue
            near = words.near(word, 1)
            if near:
                edits.append(Edit(match.start(), match.group(), max(near, key=words.log_p), 1.0))
        return edits

    return correct


def applied(text: str, start: int, stop: int, edits: list[Edit]) -> str:
    """What stands between start and stop after the edits that touch it."""
    for edit in sorted(edits, key=lambda edit: -edit.start):
        end = edit.start + len(edit.before)
        if edit.start < stop and end > start:
            text = text[: edit.start] + edit.after + text[end:]
            stop += len(edit.after) - len(edit.before)
            start = min(start, edit.start)
    return text[start:stop]


def plain(text: str) -> str:
    return re.sub(r"[^a-z]+", " ", text.lower()).strip()


def measure(passages: list[Passage], correct: Callable[[str], list[Edit]]) -> dict[str, float]:
    right = wrong = errors = damaged = clean = 0
    for text, mistakes in passages:
        edits = correct(text)
        errors += len(mistakes)
        inside: set[int] = set()
        for start, stop, intended in mistakes:
            touching = [e for e in edits if e.start < stop and e.start + len(e.before) > start]
            inside |= {e.start for e in touching}
            if touching:
                good = plain(applied(text, start, stop, touching)) == plain(intended)
                right, wrong = right + good, wrong + (not good)
        spans = [(start, stop) for start, stop, _ in mistakes]
        clean += sum(not any(m.start() < stop and m.end() > start for start, stop in spans) for m in WORD.finditer(text))
        damaged += sum(len(WORD.findall(e.before)) for e in edits if e.start not in inside)
    changes = right + wrong + damaged
    precision, recall = right / max(changes, 1), right / max(errors, 1)
    f1 = 2 * precision * recall / max(precision + recall, 1e-9)
    return {"errors": errors, "clean": clean, "precision": precision, "recall": recall, "F1": f1, "damaged": damaged / clean}


class Read(NamedTuple):
    """A passage and the candidates for each of its words, the model's context among what speaks for them."""

    passage: Passage
    sets: list[list[Candidate]]


def examples(read: list[Read]) -> list[tuple[list[dict[str, float]], int]]:
    """For each word with alternatives what speaks for its candidates, and which is right; others left out."""
    found = []
    for (text, mistakes), sets in read:
        for candidates in sets:
            start, stop = candidates[0].start, candidates[0].stop
            touched = [mistake for mistake in mistakes if mistake[0] < stop and mistake[1] > start]
            right = 0
            if touched:
                first, last, intended = touched[0]
                good = [
                    plain(applied(text, first, last, [Edit(start, text[start:stop], candidate.text, 1.0)])) == plain(intended)
                    for candidate in candidates
                ]
                right = good.index(True, 1) if True in good[1:] else -1
            if right >= 0 and len(candidates) > 1:
                found.append(([candidate.evidence for candidate in candidates], right))
    return found


def fit(cases: list[tuple[list[dict[str, float]], int]], ridge: float = 0.2) -> Channel:
    """The weights of greatest likelihood, with a little pull towards zero: a convex problem."""
    names = list(asdict(Channel()))
    widest = max(len(candidates) for candidates, _ in cases)
    facts = torch.zeros(len(cases), widest, len(names))
    there = torch.zeros(len(cases), widest, dtype=torch.bool)
    for i, (candidates, _) in enumerate(cases):
        facts[i, : len(candidates)] = torch.tensor([[candidate.get(name, 0.0) for name in names] for candidate in candidates])
        there[i, : len(candidates)] = True
    right = torch.tensor([answer for _, answer in cases])
    weights = torch.zeros(len(names), requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=200, history_size=20, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        scores = (facts @ weights).masked_fill(~there, -torch.inf)
        total = torch.nn.functional.cross_entropy(scores, right, reduction="sum") + ridge * weights.square().sum()
        total.backward()
        return total

    optimizer.step(loss)
    return Channel(**dict(zip(names, (round(weight, 2) for weight in weights.tolist()), strict=True)))


def cross_validated(model: unnoise.Model, read: list[Read], folds: int = 4) -> None:
    """What each strength does to passages that the weights were not fitted to."""
    spellers = [
        Speller(model, model_words(model), fit(examples([one for i, one in enumerate(read) if i % folds != fold])))
        for fold in range(folds)
    ]
    by_text = {one.passage.text: (spellers[i % folds], one.sets) for i, one in enumerate(read)}
    for strength in (0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.7):
        figures = measure([one.passage for one in read], lambda text: by_text[text][0].edits(text, by_text[text][1], strength))  # noqa: B023
        print(f"strength {strength}: " + "  ".join(f"{key} {value:.4g}" for key, value in figures.items()), flush=True)


def sentence_pairs(path: Path) -> list[tuple[str, str]]:
    """Sentences with mistakes, and as they were meant, word for word."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return [tuple(part.strip() for part in line.split("|")) for line in lines]  # type: ignore[misc]


def measure_sentences(pairs: list[tuple[str, str]], correct: Callable[[str], list[Edit]]) -> dict[str, int]:
    """How many mistakes are found, and mended; words harmed beside them, and in the sentences as meant."""
    mistakes = found = mended = beside = harmed = 0
    for wrong, meant in pairs:
        edits = correct(wrong)
        harmed += len(correct(meant))
        beside += len(edits)
        start = 0
        for one, other in zip(wrong.split(" "), meant.split(" "), strict=True):
            stop = start + len(one)
            if one != other:
                touching = [edit for edit in edits if edit.start < stop and edit.start + len(edit.before) > start]
                mistakes += 1
                found += bool(touching)
                mended += plain(applied(wrong, start, stop, touching)) == plain(other)
                beside -= len(touching)
            start = stop + 1
    counts = {"sentences": len(pairs), "mistakes": mistakes, "found": found, "mended": mended}
    return counts | {"harmed beside": beside, "harmed when right": harmed}


def speed(model: unnoise.Model, ordinary: str) -> None:
    letters = "".join(random.Random(0).choices(string.ascii_lowercase, k=40_000))
    kinds = {"ordinary text": ordinary, "random letters": letters, "aaaa…": "a" * 40_000, "a@a@…": "a@" * 20_000}
    kinds |= {"....…": "." * 40_000, "www.www.…": "www." * 10_000, "a@a a@a …": "a@a " * 10_000}
    correct(model, "the largst")  # so that lists are made before the clock starts
    for name, text in kinds.items():
        for length in (5_000, 10_000, 20_000, 40_000):
            begun, start = time.perf_counter(), time.process_time()
            edits = correct(model, text[:length]).edits
            clock, seconds = time.perf_counter() - begun, time.process_time() - start
            print(
                f"{name:15s} {length:6d} characters {seconds:8.3f} s of processor time {clock:8.3f} s by the clock "
                f"({length / clock:,.0f} characters a second)  {len(edits)} edits",
                flush=True,
            )


def read(path: Path) -> str:
    """A text, without the marks for rare words and the blanks before commas and full stops that WikiText has."""
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return re.sub(r" (?=[.,;:!?)'])| ?<unk>| @(?=[-,.]@)|(?<=[-,.])@ ", "", content.decode(errors="replace"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="runs/mdlm")
    parser.add_argument("--strength", type=float, default=0.5)
    parser.add_argument("--part", choices=["tune", "report", "all"], default="report")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--text", type=Path)
    options = parser.parse_args()
    model = unnoise.load(options.model)
    words = model_words(model)
    assert words is not None
    if options.fit:
        speller = Speller(model, words)
        tune = holbrook(options.data / "holbrook-tagged.dat", "tune")
        tuned = [Read(passage, list(speller.candidates(passage.text, complete=True))) for passage in tune]
        cases = examples(tuned)
        print(f"{len(cases)} words, {sum(right > 0 for _, right in cases)} of them misspelled, with the right one a candidate")
        print(fit(cases), flush=True)
        cross_validated(model, tuned)
        raise SystemExit
    if options.speed:
        all_passages = "\n".join(passage.text for passage in holbrook(options.data / "holbrook-tagged.dat", "all"))
        speed(model, read(options.text) if options.text else all_passages)
        raise SystemExit
    passages = holbrook(options.data / "holbrook-tagged.dat", options.part)
    ours: Callable[[str], list[Edit]] = lambda text: correct(model, text, options.strength).edits  # noqa: E731
    for name, edited in (("baseline", baseline(words)), ("unnoise", ours)):
        pairs = norvig(options.data / "spell-testset1.txt")
        hits = sum(applied(wrong, 0, len(wrong), edited(wrong)).lower() == right for wrong, right in pairs)
        print(f"Norvig     {name:9s} {hits} of {len(pairs)} right ({hits / len(pairs):.3f})", flush=True)
        for file in SENTENCES:
            counts = measure_sentences(sentence_pairs(Path(__file__).with_name(file)), edited)
            print(f"{file} {name:9s} " + "  ".join(f"{key} {value}" for key, value in counts.items()), flush=True)
        figures = measure(passages, edited)
        print(f"Holbrook   {name:9s} " + "  ".join(f"{key} {value:.4g}" for key, value in figures.items()), flush=True)
    print(correct(model, PARAGRAPH, options.strength).text)
