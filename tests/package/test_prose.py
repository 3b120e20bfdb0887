"""The number of phrases that make technical English hard to read does not rise."""

from pathlib import Path

import pytest

from prose import PLACES, ROOT, hits

# a limit only ever falls
LIMITS = {
    "src": 97,
    "README.md": 0,
    "docs": 0,
    "CONTRIBUTING.md": 0,
    "CHANGELOG.md": 0,
    "tests": 0,
    "benchmarks": 82,
    "examples": 0,
}


@pytest.mark.parametrize("place", PLACES)
def test_the_number_of_stilted_phrases_does_not_rise(place: str) -> None:
    found = hits(ROOT / place)
    assert len(found) <= LIMITS[place], "\n".join(map(str, found))


def test_docstrings_and_comments_are_read(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        '"""How to write."""\n'
        "class Loop:\n"
        '    """The loop of a run."""\n'
        "    def run(self):\n"
        '        """The result."""\n'
        f"        return 1  {'#'} as it came\n"
        "    @property\n"
        "    def steps(self):\n"
        '        """The number of steps."""\n'
        '        return "what is given"\n'
    )
    assert [(hit.line, hit.text) for hit in hits(tmp_path)] == [(1, "How to write."), (5, "The result."), (6, "as it came")]


def test_pages_are_read_without_their_code(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("The network knows it.\n\n```\nthe network knows it\n```\n\n    but for\n\nbut for\n")
    assert [(hit.line, hit.rule.advice) for hit in hits(tmp_path)] == [
        (1, "a part of a program evaluates, returns or conditions"),
        (9, "write `except`"),
    ]
