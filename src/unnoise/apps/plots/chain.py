"""Picture of a denoising chain: some of its states, as rows of tokens or as images side by side.

Replay of a denoising chain as a self-contained HTML page, with the confidence of the network in each token.
"""

import html
import json
from collections.abc import Iterable, Sequence
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


FRAMES = 240  # largest number of frames, to limit the size of the page


def write_replay(path: Path, steps: Iterable[Step], title: str) -> Path:
    """Write the page and return its path."""
    frames = list(steps)
    if len(frames) > FRAMES:
        frames = [frames[round(i * (len(frames) - 1) / (FRAMES - 1))] for i in range(FRAMES)]
    data = [
        {"t": round(f.t, 4), "x": f.tokens, "c": [round(c, 2) for c in f.confidences], "n": list(map(int, f.fresh))}
        for f in frames
    ]
    # escape "<", so that no text can close the script element
    page = _PAGE.replace("__TITLE__", html.escape(title)).replace("__DATA__", json.dumps(data).replace("<", "\\u003c"))
    write_atomically(path, page.encode())
    return path


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>__TITLE__</title>
<style>
:root{--paper:#fbfaf7;--ink:#22211f;--dim:#b9b4a8;--mark:#0b7a75}
@media(prefers-color-scheme:dark){:root{--paper:#171715;--ink:#e9e6df;--dim:#57534a;--mark:#4fd1c5}}
body{background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
body{max-width:62rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.1rem;font-weight:600}
#text{font:1.15rem/1.9 ui-monospace,Menlo,Consolas,monospace;white-space:pre-wrap;overflow-wrap:anywhere;min-height:12rem}
#text span{border-radius:.2em;transition:background .25s}
.mask{color:var(--dim)}.fresh{color:var(--mark);font-weight:700}
.bar{display:flex;gap:.8rem;align-items:center;flex-wrap:wrap}
input[type=range]{flex:1;min-width:12rem;accent-color:var(--mark)}
button{font:inherit;padding:.3rem .9rem;border:1px solid var(--dim);border-radius:.4rem}
button{background:none;color:inherit;cursor:pointer}
small{color:var(--dim)}
</style></head><body>
<h1>__TITLE__</h1>
<div class="bar"><button id="play" aria-label="play or pause">play</button>
<input id="at" type="range" min="0" value="0" aria-label="moment"><span id="when"></span>
<label><input id="heat" type="checkbox" checked> confidence</label></div>
<div id="text" aria-live="off"></div>
<small>space plays, arrow keys step; the paler the mark, the surer the network was</small>
<script>
const data=__DATA__,at=document.getElementById('at'),text=document.getElementById('text'),when=document.getElementById('when'),
play=document.getElementById('play'),heat=document.getElementById('heat');let timer=null;at.max=data.length-1;
function show(){const i=+at.value,f=data[i];text.replaceChildren(...f.x.map((token,k)=>{
const s=document.createElement('span');s.textContent=token;const masked=token[0]==='\\u00b7';
s.className=(masked?'mask':'')+(f.n[k]?' fresh':'');
if(heat.checked&&!masked&&f.c[k]>0){s.style.background=`rgba(230,120,30,${(0.45*(1-f.c[k])).toFixed(2)})`;
s.title=`probability ${f.c[k]}`}return s}));when.textContent=`t = ${f.t.toFixed(2)}  (${i} of ${data.length-1})`}
function stop(){clearInterval(timer);timer=null;play.textContent='play'}
function start(){if(+at.value===data.length-1)at.value=0;play.textContent='pause';
timer=setInterval(()=>{if(+at.value>=data.length-1)return stop();at.value=+at.value+1;show()},Math.max(30,6000/data.length))}
play.onclick=()=>timer?stop():start();at.oninput=()=>{stop();show()};heat.onchange=show;
document.addEventListener('keydown',e=>{if(e.target===at)return;if(e.key===' '){e.preventDefault();timer?stop():start()}
if(e.key==='ArrowRight'){stop();at.value=+at.value+1;show()}if(e.key==='ArrowLeft'){stop();at.value=+at.value-1;show()}});
show();start();
</script></body></html>
"""
