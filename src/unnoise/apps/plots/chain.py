"""Denoising chains as pictures of some of their states, and as HTML pages that replay all of them."""

import html
import json
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path

import numpy as np

from unnoise.apps.plots.style import drawing, look
from unnoise.apps.plots.tokens import SMALL, Kind, Row, plot_rows
from unnoise.data import Pixels
from unnoise.data.codec_names import coloured
from unnoise.files import write_atomically
from unnoise.model.generate import Step
from unnoise.model.model import Model

NAMES: dict[Kind, str] = {"mask": "mask", "changed": "changed since the row above"}
IMAGE = 1.4  # width of an image in inches
FRAMES = 240  # maximum number of frames of a page, to limit its size


def plot_chain(model: Model, path: Path, steps: int, seed: int, moments: int = 6, *, dark: bool = False) -> None:
    """Draw some states of one chain, from noise to data."""
    frames = list(model.chain(steps=steps, seed=seed))
    chosen = [frames[round(i * (len(frames) - 1) / (moments - 1))] for i in range(moments)]
    title = f"{model.method.name}, seed {seed}"
    if isinstance(model.codec, Pixels):
        plot_images(model.codec, chosen, path, title, dark=dark)
    else:
        plot_rows(path, title, {"": chain_rows(chosen, model.codec.vocab, model.codec.eos)}, NAMES, together=False, dark=dark)


def chain_rows(steps: Sequence[Step], vocab: int, end: int | None = None) -> list[Row]:
    """Return the rows of tokens for some states of a chain.

    All rows are cut after EOS of the last state. Changes are marked only between states of equal length.
    """
    last = steps[-1].ids
    length = last.index(end) + 1 if end is not None and end in last else max(len(step.ids) for step in steps)
    rows, before = [], steps[0]
    for step in steps:
        alike = len(step.ids) == len(before.ids)
        kinds: list[Kind] = [
            "mask" if token >= vocab else "changed" if alike and token != before.ids[i] else "plain"
            for i, token in enumerate(step.ids)
        ]
        rows.append(Row(f"t = {step.t:.2f}", step.tokens[:length], kinds[:length]))
        before = step
    return rows


def plot_images(codec: Pixels, steps: Sequence[Step], path: Path, title: str, *, dark: bool = False) -> None:
    """Draw states of an image side by side. Masked pixels are drawn as dots."""
    colors = look(dark)
    mask = np.array([int(colors.mask[i : i + 2], 16) for i in (1, 3, 5)], dtype=np.uint8)
    ratio, top = codec.shape[0] / codec.shape[1], 0.4
    with drawing(path, IMAGE * len(steps), IMAGE * ratio + top, dark=dark) as figure:
        axes = figure.add_axes((0, 0, 1, 1))
        axes.axis("off")
        axes.set(xlim=(0, IMAGE * len(steps)), ylim=(0, IMAGE * ratio + top))
        axes.text(0, IMAGE * ratio + 0.26, title, fontsize=SMALL + 1)
        for i, step in enumerate(steps):
            there = (np.array(step.ids).reshape(*codec.shape[:2], -1) < codec.vocab).all(-1)
            drawn = coloured(codec.decode_image([min(state, codec.vocab - 1) for state in step.ids]), 3)
            left, wide, high = IMAGE * i, 0.95 * IMAGE, 0.95 * IMAGE * ratio
            extent = (left, left + wide, 0, high)
            axes.imshow(np.where(np.expand_dims(there, -1), drawn, mask), extent=extent, interpolation="nearest", aspect="auto")
            down, right = np.nonzero(~there)
            cell = wide / codec.shape[1]
            axes.scatter(
                left + (right + 0.5) * cell, high - (down + 0.5) * cell, s=(9 * cell) ** 2, color=colors.dim, linewidths=0
            )
            axes.text(left, IMAGE * ratio, f"t = {step.t:.2f}", fontsize=SMALL, color=colors.dim)
        axes.set(xlim=(0, IMAGE * len(steps)), ylim=(0, IMAGE * ratio + top))  # imshow changes the limits


def write_replay(path: Path, steps: Iterable[Step], title: str) -> Path:
    """Write a self-contained page that replays a chain, with the network's confidence in each token, and return its path."""
    frames = list(steps)
    if len(frames) > FRAMES:
        frames = [frames[round(i * (len(frames) - 1) / (FRAMES - 1))] for i in range(FRAMES)]
    data = [
        {"t": round(f.t, 4), "x": f.tokens, "c": [round(c, 2) for c in f.confidences], "n": list(map(int, f.fresh))}
        for f in frames
    ]
    page = resources.files("unnoise.apps.plots").joinpath("replay.html").read_text(encoding="utf-8")
    script = json.dumps(data).replace("<", "\\u003c")  # so that no text can close the script element
    write_atomically(path, page.replace("__TITLE__", html.escape(title)).replace("__DATA__", script).encode())
    return path
