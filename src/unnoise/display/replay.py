"""Replay of a denoising chain as a self-contained HTML page, with the confidence of the network in each token."""

import html
import json
from collections.abc import Iterable
from pathlib import Path

from unnoise.files import write_atomically
from unnoise.model.generate import Step

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
