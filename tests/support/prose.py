"""Find phrases that make technical English hard to read.

    python tests/support/prose.py [PATH ...]      # one line for each phrase found; all of the project by default

A rule is a heuristic. Rewrite the sentence instead of replacing a word, and read it aloud afterwards.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACES = "src", "README.md", "docs", "CONTRIBUTING.md", "CHANGELOG.md", "tests", "benchmarks", "examples"


@dataclass(frozen=True)
class Rule:
    """A pattern to avoid, and what to write instead."""

    pattern: str
    advice: str

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.IGNORECASE)


QUESTION = Rule(r"^(what|how|whether|who|whom|where|which|whose|that which|those)\b", "start with a verb or a noun")
ARTICLE = Rule(r"^(the|a|an)\b", "start a function's docstring with a verb: Return, Compute, Raise")
PARTS = "network|model|loop|process|sampler|trainer|objective|codec|loss"
PHRASES = (
    Rule(r"\b(of|on) one's own\b|\bof (its|their|your|my) own\b", "name the owner"),
    Rule(r"\b(but|save) for\b", "write `except`"),
    Rule(r"\bso (many|much) (of|rows|steps|tokens|texts)\b|\bup to so many\b", "write the number's name"),
    Rule(r"\b(than|as|and|or|with|from|to|is|beside) (that|those) (of|that|which)\b", "repeat the noun"),
    Rule(r"\b(as such|of such|in such|such (one|ones|as are|that are))\b", "repeat the noun"),
    Rule(r"\b(is|are|was|were) no (bounds?|path|figure|method|likelihood|tests?|sentence)\b", "write `is not a`"),
    Rule(r"\bas (they came|it came|they come)\b", "write `unchanged` or `in the original order`"),
    Rule(
        r"\bwhat (is|was|are|were) (given|typed|said|asked|left|measured|known|there|needed|written|tried|worth)\b",
        "name the thing",
    ),
    Rule(r"\bneed not\b", "write `does not have to`"),
    Rule(
        rf"\b(the )?({PARTS})s? (knows?|sees?|says?|asks?|wants?|learned of|comes apart|is told|tells)\b",
        "a part of a program evaluates, returns or conditions",
    ),
    Rule(r"\bfigures? (of|for|in|is|are|was|were|that|with|beside)\b", "write `number` or `result`"),
    Rule(r"\bbeside (it|them|the|that|each)\b", "write `next to`"),
    Rule(r"\b(goes|go|went|gone) on\b", "write `continue` or `resume`"),
    Rule(r"\bat hand\b|\bin one house\b|\bat home on\b", "say it plainly"),
    Rule(r"\b(that|which|what) (is|are|was|were) there\b", "write `existing` or name the thing"),
    Rule(r"\b(come|comes|came) (apart|of)\b", "write `diverged` or `result`"),
)


@dataclass(frozen=True)
class Hit:
    """A phrase to rewrite."""

    path: Path
    line: int
    rule: Rule
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule.advice}: {self.text[:120]}"


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    names = {node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "") for node in function.decorator_list}
    return bool(names & {"property", "cached_property", "setter"})


def phrases(path: Path, line: int, text: str) -> Iterator[Hit]:
    """Yield a hit for each rule that a line breaks."""
    return (Hit(path, line, rule, text.strip()) for rule in PHRASES if rule.compiled.search(text))


def in_docstring(path: Path, node: ast.AST, line: int, text: str) -> Iterator[Hit]:
    """Yield the hits of a docstring that starts at `line`."""
    first, *_ = text.strip().splitlines()
    if QUESTION.compiled.match(first):
        yield Hit(path, line, QUESTION, first)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_property(node) and ARTICLE.compiled.match(first):
        yield Hit(path, line, ARTICLE, first)
    for offset, part in enumerate(text.splitlines()):
        yield from phrases(path, line + offset, part)


def in_python(path: Path) -> Iterator[Hit]:
    """Yield the hits of all docstrings and comments of a source file."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and (text := ast.get_docstring(node)):
            yield from in_docstring(path, node, node.body[0].lineno, text)
    for number, line in enumerate(source.splitlines(), 1):
        if comment := re.search(r"(?<!['\"])#\s(.*)$", line):
            yield from phrases(path, number, comment[1])


def in_markdown(path: Path) -> Iterator[Hit]:
    """Yield the hits of a page, code blocks excluded."""
    code = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        code ^= line.lstrip().startswith("```")
        if not code and not line.startswith("    "):
            yield from phrases(path, number, line)


def hits(place: Path) -> list[Hit]:
    """Return the hits of a file, or of all Python files and pages of a folder."""
    files = sorted(place.rglob("*")) if place.is_dir() else [place]
    readers = {".py": in_python, ".md": in_markdown}
    return [hit for path in files if path.suffix in readers for hit in readers[path.suffix](path)]


if __name__ == "__main__":
    found = [hit for place in sys.argv[1:] or PLACES for hit in hits(Path(place))]
    print(*found, f"{len(found)} phrases to rewrite", sep="\n")
