"""Pictures of chains and noise: no token lies over another, none is cut, and a position keeps its place."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import unnoise
from unnoise.apps.plots.chain import plot_chain
from unnoise.apps.plots.style import DARK, LIGHT
from unnoise.apps.plots.tokens import Kind, Row, plot_rows
from unnoise.cli.main import main
from unnoise.data import Characters, codec

matplotlib = pytest.importorskip("matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from matplotlib.collections import PathCollection  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.patches import Rectangle  # noqa: E402
from matplotlib.text import Text  # noqa: E402

KINDS: tuple[Kind, ...] = ("plain", "mask", "changed")
SENTENCE = "the encyclopaedia describes unconstitutional characteristics of extraordinarily long words"


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Figure]]:
    """Collect what is saved, in this order."""
    saved: list[Figure] = []
    save = Figure.savefig

    def follow(figure: Figure, *arguments: Any, **options: Any) -> None:
        saved.append(figure)
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", follow)
    yield saved


def boxes(figure: Figure) -> tuple[list[str], np.ndarray]:
    """Each text of a figure, and its extent in pixels: [N, 4] as left, bottom, right, top."""
    renderer = FigureCanvasAgg(figure).get_renderer()
    texts = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]  # type: ignore[arg-type]
    return [text.get_text() for text in texts], np.array([text.get_window_extent(renderer).extents for text in texts])


def overlaps(extents: np.ndarray) -> int:
    """Return how many pairs of boxes share an area; edges may touch."""
    left, bottom, right, top = (extents[:, i] for i in range(4))
    wide = np.minimum(right[:, None], right) - np.maximum(left[:, None], left)
    high = np.minimum(top[:, None], top) - np.maximum(bottom[:, None], bottom)
    shared = (wide > 0.01) & (high > 0.01)
    return int(np.triu(shared, 1).sum())


def whole(tokens: Sequence[str]) -> Counter[str]:
    """Return the tokens without blanks at their ends, those of nothing else left out."""
    return Counter(word for token in tokens if (word := token.strip().replace("\n", "↵")))


def check(figure: Figure, tokens: Sequence[str]) -> None:
    """Raise AssertionError if texts overlap, or if one of these tokens is not drawn in full."""
    texts, extents = boxes(figure)
    assert len(texts) > 6 and overlaps(extents) == 0
    assert not whole(tokens) - Counter(map(str.strip, texts))


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["wiki", "stories", "molecules"])
def test_a_chain_of_words_is_legible(name: str, dark: bool, tmp_path: Path, figures: list[Figure]) -> None:
    out = tmp_path / "chain.png"
    assert main(["plot", "chain", "--model", name, "--steps", "6", "--out", str(out)] + dark * ["--dark"]) == 0
    model = unnoise.load(name)
    *_, last = model.chain(steps=6, seed=0)
    written = last.ids.index(model.codec.eos) if model.codec.eos in last.ids else len(last.ids)
    check(figures[0], last.tokens[:written])
    assert out.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("name", ["stories", "wiki", "text8"])
def test_noise_on_words_is_legible(name: str, tmp_path: Path, figures: list[Figure]) -> None:
    out = tmp_path / "noise.png"
    for method in ("uniform", "absorbing"):
        assert main(["noise", SENTENCE, "--codec", name, "--method", method, "--picture", str(out)]) == 0
        read = codec(name)
        check(figures[-1], read.show_states(read.encode(read.with_leading_space(SENTENCE)).tolist()))


def test_a_way_back_is_legible_in_both_looks(tmp_path: Path, figures: list[Figure]) -> None:
    line = ["noise", SENTENCE, "--model", "wiki", "--times", "0", "0.5", "--steps", "4", "--picture", str(tmp_path / "a.svg")]
    for more, look in (([], LIGHT), (["--dark"], DARK)):
        assert main([*line, *more]) == 0
        texts, _ = boxes(figures[-1])
        check(figures[-1], unnoise.load("wiki").codec.show_states(unnoise.load("wiki").codec.encode(" " + SENTENCE).tolist()))
        assert "and back" in texts and "mask" in texts
        colors = {matplotlib.colors.to_hex(box.get_facecolor()) for box in figures[-1].findobj(Rectangle)}  # type: ignore[arg-type]
        assert {look.mask, look.changed} <= colors and look.paper == matplotlib.colors.to_hex(figures[-1].get_facecolor())


def test_a_position_keeps_its_place(tmp_path: Path, figures: list[Figure]) -> None:
    """Each word that stays is at the same x in every moment, also if tokens before it change their length."""
    out = str(tmp_path / "noise.png")
    times = ["0", "0.2", "0.4"]
    assert main(["noise", SENTENCE, "--codec", "stories", "--method", "uniform", "--times", *times, "--picture", out]) == 0
    texts, extents = boxes(figures[0])
    lefts: dict[str, set[float]] = {}
    for text, left in zip(texts, extents[:, 0], strict=True):
        lefts.setdefault(text, set()).add(round(float(left), 3))
    assert all(len(lefts[word]) == 1 for word in ("encyc", "lop", "characteristics") if word in lefts)
    assert sum(len(found) == 1 and texts.count(word) > 1 for word, found in lefts.items()) > 5


def test_signs_that_cannot_be_seen_are_shown(tmp_path: Path, figures: list[Figure]) -> None:
    """Line breaks, tabs, control characters, lone blanks, wide letters, a token wider than the page."""
    tokens = ["a\n\nb", "\t", "\x1b[31m", " ", "\ud83d", "", "漢字", "m" * 200, " $x$"]
    plain, mask, changed = (cast(list[Kind], [kind] * 9) for kind in KINDS)
    rows = [Row("t = 0.00", tokens, plain), Row("t = 1.00", ["·"] * 9, mask), Row("", tokens, changed)]
    for together in (False, True):
        plot_rows(tmp_path / "all.png", "signs", {"": rows}, {"mask": "mask"}, together=together)
        texts, extents = boxes(figures[-1])
        assert overlaps(extents) == 0
        assert {"a↵↵b", "⇥", "�[31m", "�", "▯", "漢字", "m" * 200, "$x$", "␣"} <= set(texts)
        assert texts.count("␣") == 1, "a plain blank stays a blank"


def test_a_text_that_grows_is_laid_out_by_itself(tmp_path: Path, figures: list[Figure]) -> None:
    model = unnoise.Model.build("flexmdm", Characters("abcdefgh "), length=40, width=16, depth=1, heads=2)
    plot_chain(model, tmp_path / "empty.png", 12, 0)
    assert [text for text in boxes(figures[0])[0] if text.startswith("t = ")][-1] == "t = 0.00", "an empty text has times too"
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    plot_chain(model, tmp_path / "grown.png", 12, 0)
    first, *_, last = model.chain(steps=12, seed=0)
    assert len(first.tokens) < len(last.tokens)
    check(figures[1], last.tokens)


@pytest.mark.parametrize("dark", [False, True])
def test_pixels_that_are_masks_are_marked(dark: bool, tmp_path: Path, figures: list[Figure]) -> None:
    """One dot on each of them, at its place."""
    model = unnoise.load("digits")
    plot_chain(model, tmp_path / "digits.png", 4, 0, dark=dark)
    first, *others, last = (np.asarray(one.get_offsets()) for one in figures[0].findobj(PathCollection))  # type: ignore[arg-type]
    row, column = np.nonzero(
        np.array([token >= model.codec.vocab for token in list(model.chain(steps=4, seed=0))[2].ids]).reshape(8, 8)
    )
    assert len(first) == 64 and len(last) == 0
    spots = next(one for one in others if len(one) == len(row))
    cell = 0.95 * 1.4 / 8
    assert np.allclose(np.diff(spots[:, 0]), cell * np.diff(column)) and np.allclose(np.diff(spots[:, 1]), -cell * np.diff(row))
    texts, extents = boxes(figures[0])
    assert overlaps(extents) == 0 and sum(text.startswith("t = ") for text in texts) == 6
