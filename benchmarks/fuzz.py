"""Damaged files, wrong command lines and malformed requests, by the thousand: what came of them, and in how much memory.

    python benchmarks/fuzz.py                              # 2,000 models, 200 states, 200 .npz, 300 commands, 5,000 requests
    python benchmarks/fuzz.py --kinds models --scale 0.1   # a tenth of one kind
    python benchmarks/fuzz.py --seed 7

Each case ends in one of: refused (one sentence), harmless (it opened, with the numbers that it had before), or in a failure:
traceback (any other exception, or a sentence of several lines), other numbers, or too slow (ten seconds). Failures are listed
with the number that repeats them; the exit code is 1 if there are any, or if more than 1 GB of memory was needed.
"""

import argparse
import contextlib
import io
import json
import logging
import os
import random
import resource
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import unnoise
from unnoise.apps.spelling.words import FILE, Words, model_words
from unnoise.cli.main import main as command
from unnoise.data.documents import images
from unnoise.training.checkpointing import has_state
from unnoise.training.trainer import TrainingRun
from unnoise.training.training_options import TrainingOptions

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

COUNTS = {"models": 2000, "states": 200, "images": 200, "commands": 300, "requests": 5000}
SECONDS = 10
TEXT = "the cat sat on the mat while a dog barked at the moon and seven birds sang in the old tree. " * 40
FAILURES = ("traceback", "other numbers", "too slow", "server error", "no answer")


class TooSlow(Exception):
    """A case took longer than it may."""


@contextlib.contextmanager
def time_limit(seconds: int = SECONDS) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(act: Callable[[], bool]) -> tuple[str, str]:
    """What came of opening something: act says whether it has the numbers that it had before."""
    try:
        with time_limit():
            return ("harmless", "") if act() else ("other numbers", "")
    except ValueError as error:
        words = str(error)
        return ("refused", words) if words and "\n" not in words.strip() else ("traceback", f"several lines: {words!r}")
    except TooSlow:
        return "too slow", ""
    except BaseException as error:
        return "traceback", f"{type(error).__name__}: {error}"


# ---- damage ----------------------------------------------------------------------------------------------------------


def damage_bytes(content: bytes, rng: random.Random) -> bytes:
    """Cut, flipped, doubled, zeroed, shuffled or replaced."""
    size = len(content)
    at, much = rng.randrange(size + 1), rng.choice([1, 2, 8, 64, 4096])
    return rng.choice(
        [
            lambda: content[:at],
            lambda: content[at:],
            lambda: content[:at] + bytes([content[at] ^ (1 << rng.randrange(8))]) + content[at + 1 :] if at < size else b"",
            lambda: content[:at] + rng.randbytes(much) + content[at + much :],
            lambda: content[:at] + bytes(much) + content[at + much :],
            lambda: content[:at] + rng.randbytes(much) + content[at:],
            lambda: content[:at] + content[at + much :],
            lambda: content + content,
            lambda: b"",
            lambda: rng.randbytes(min(size, 4096)),
            lambda: b"\x80\x04\x95" + content,
            lambda: b"PK\x03\x04" + content,
            lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        ]
    )()


ODD_VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2, 2**31, 2**63, -(2**63), 10**30, 0.5, 1e308, "", "x", "mdlm", "\x1b[31m", "a" * 10_000,
    [], [1], ["a"] * 100, {}, {"kind": "chars"}, {"a": {"b": []}}, [[[[]]]],
]  # fmt: skip


def damage_json(content: bytes, rng: random.Random) -> bytes:
    """One node of the tree replaced, removed or put in besides."""
    from json_tree import places_in

    tree = json.loads(content)
    node, key = rng.choice(list(places_in(tree)))
    what = rng.randrange(4)
    if what == 0:
        del node[key]
    elif what == 1:
        node[key] = rng.choice(ODD_VALUES)
    elif what == 2 and isinstance(node, dict):
        node[rng.choice(["x", "depth", "length", "labels", "time", "inputs", "__class__"])] = rng.choice(ODD_VALUES)
    elif isinstance(node[key], int) and not isinstance(node[key], bool):
        node[key] = node[key] + rng.choice([-1, 1, 7, 10**6])
    else:
        node[key] = {"x": node[key]}
    return json.dumps(tree).encode()


def damage_tensors(content: bytes, rng: random.Random) -> bytes:
    """The header of a safetensors file changed, and written with its right length."""
    (length,) = struct.unpack("<Q", content[:8])
    header = damage_json(content[8 : 8 + length], rng)
    return struct.pack("<Q", rng.choice([len(header)] * 4 + [2**40, 0])) + header + content[8 + length :]


def damage_file(path: Path, rng: random.Random) -> None:
    """One file, in some way."""
    what = rng.randrange(10)
    if what == 0:
        path.unlink()
        rng.choice([lambda: None, path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to("/dev/zero")])()
        return
    content = path.read_bytes()
    if path.suffix == ".json" and what < 7:
        path.write_bytes(damage_json(content, rng))
    elif path.suffix == ".safetensors" and what < 5:
        path.write_bytes(damage_tensors(content, rng))
    else:
        path.write_bytes(damage_bytes(content, rng))


# ---- models ----------------------------------------------------------------------------------------------------------


def small(method: str, codec: Any, **options: Any) -> unnoise.Model:
    model = unnoise.Model.build(method, codec, length=12, width=16, depth=1, heads=2, **options)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    return model


def make_models(home: Path) -> list[Path]:
    """Four that differ in method, codec and files."""
    made = {
        "text8": small("mdlm", "text8"),
        "bpe": small("genmd4", unnoise.codec("bpe-300", [TEXT])),
        "chars": small("gaussian", unnoise.codec("chars", [TEXT]), labels=["a", "b"]),
        "flex": small("flexmdm", "bytes"),
    }
    made["text8"].extra_files[FILE] = Words(dict.fromkeys(TEXT.split(), 10)).to_bytes()
    for name, model in made.items():
        model.save(home / name)
    return [home / name for name in made]


def numbers_of(folder: Path) -> Any:
    """What a model says: a text, a bound, and its words."""
    model = unnoise.load(folder)
    known = model_words(model)
    words = None if known is None else known.counts
    return model.generate(n=1, steps=3, seed=1), model.score("the cat sat", samples=2).nats, words


def fuzz_models(count: int, seed: int, home: Path) -> Iterator[tuple[str, str]]:
    folders = make_models(home / "models")
    wanted = {folder: numbers_of(folder) for folder in folders}
    for i in range(count):
        rng = random.Random(f"model {seed} {i}")
        original = rng.choice(folders)
        folder = home / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(original, folder)
        if rng.randrange(20) == 0:  # a file of another model
            other = rng.choice([one for one in folders if one != original])
            name = rng.choice(["config.json", "model.safetensors"])
            shutil.copyfile(other / name, folder / name)
        else:
            damage_file(rng.choice(sorted(path for path in folder.iterdir() if path.is_file())), rng)
        had_words = (folder / "words.txt.gz").is_file()

        def act(folder: Path = folder, wanted: Any = wanted[original], had_words: bool = had_words) -> bool:
            found = numbers_of(folder)
            return found[:2] == wanted[:2] and (found[2] == wanted[2] or not had_words)

        yield outcome(act)


# ---- training states -------------------------------------------------------------------------------------------------


def run_in(folder: Path, steps: int = 8) -> TrainingRun:
    options = TrainingOptions(steps=steps, batch=2, eval_windows=2, save_every=2, ema_decay=0.9)
    torch.manual_seed(0)
    return TrainingRun(small("mdlm", "text8"), torch.from_numpy(unnoise.codec("text8").encode(TEXT)), options, folder)


def state_of(run: TrainingRun) -> tuple[Any, ...]:
    """Step, weights and moments."""
    moments = [value for optimizer in run.optimizers for state in optimizer.state.values() for value in state.values()]
    return run.done, *(float(value.detach().double().sum()) for value in [*run.learned.parameters(), *moments])


def fuzz_states(count: int, seed: int, home: Path) -> Iterator[tuple[str, str]]:
    first = run_in(home / "run")
    first.run(stop=lambda: first.done >= 5)
    steps = sorted(path.name for path in (home / "run" / "checkpoints").iterdir())
    good = []
    for name in steps:
        shutil.copytree(home / "run" / "checkpoints" / name, home / f"only {name}" / "checkpoints" / name)
        one = run_in(home / f"only {name}")
        one.resume()
        good.append(state_of(one))
    for i in range(count):
        rng = random.Random(f"state {seed} {i}")
        folder = home / "damaged run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(home / "run", folder)
        for name in rng.choice([steps[-1:], steps[-1:], steps]):
            damage_file(rng.choice(sorted((folder / "checkpoints" / name).iterdir())), rng)

        def act(folder: Path = folder) -> bool:
            run = run_in(folder)
            return (run.resume() and state_of(run) in good) or not has_state(folder)

        yield outcome(act)


# ---- images ----------------------------------------------------------------------------------------------------------


def fuzz_images(count: int, seed: int, home: Path) -> Iterator[tuple[str, str]]:
    pictures = np.random.default_rng(0).integers(0, 256, (30, 6, 6), dtype=np.uint8)
    arrays = {"train": pictures, "test": pictures[:5], "train_labels": np.arange(30) % 3, "test_labels": np.arange(5) % 3}
    path = home / "pictures.npz"
    for i in range(count):
        rng = random.Random(f"images {seed} {i}")
        changed: dict[str, Any] = dict(arrays)
        what = rng.randrange(3)
        if what == 0:  # a whole archive with arrays that are not right
            name = rng.choice(list(arrays))
            changed[name] = rng.choice(
                [
                    lambda a: a.astype(float) * np.nan,
                    lambda a: a[:0],
                    lambda a: a.reshape(-1),
                    lambda a: a.astype("U3"),
                    lambda a: np.array([None] * len(a), dtype=object),
                    lambda a: a.astype(np.int64) - 300,
                    lambda a: a[..., None, None],
                    lambda a: np.array(3),
                ]
            )(arrays[name])
            if rng.randrange(3) == 0:
                del changed[rng.choice(list(changed))]
        (np.savez_compressed if rng.randrange(2) else np.savez)(path, **changed)
        if what:
            path.write_bytes(damage_bytes(path.read_bytes(), rng))

        def act(changed: dict[str, Any] = changed, what: int = what) -> bool:
            found = images(path)
            shown = found.texts(found.codec("auto", False), "train", 36).windows()
            return what == 0 or bool((shown.reshape(-1).numpy() == pictures[np.arange(30) % 10 != 9].reshape(-1)).all())

        yield outcome(act)


# ---- command lines ---------------------------------------------------------------------------------------------------

LINES = [
    "train mdlm --data {text} --size nano --length 16 --steps 1 --eval-windows 2 --batch 2 --out {out}",
    "train flexmdm --data {text} --size nano --length 128 --steps 1 --eval-windows 2 --batch 2 --out {out}",
    "train md4:offset=1e-4 --data {text} --codec bpe-300 --size nano --length 16 --steps 1 --eval-windows 2 --out {out}",
    "train mdlm --resume --out {run} --steps 8 --data {text}",
    "compare mdlm ar --data {text} --size nano --length 16 --steps 1 --windows 2",
    "generate --model {model} --steps 2 --num-samples 2 --seed 3 --temperature 0.9 --top-p 0.9",
    "generate --model {model} --steps 2 --sampler remasking:rate=0.1",
    "generate --model {model} --steps 2 --json",
    "infill --model {model} --steps 2 the[MASK]cat",
    "complete --model {model} --prefix the --steps 2 --blanks 4",
    "score --model {model} the-cat-sat",
    "eval --model {model} --data {text} --split test --windows 4 --samples 2",
    "correct --model {model} {text}",
    "info --model {model}",
    "prepare {text} --workers 1 --codec bpe-300 --shard-size 500 --valid-share 0.1 --out {out}",
    "ls",
    "plot schedule --out {out}.png",
    "plot chain --model {model} --steps 2 --out {out}.png",
]
ODD_WORDS = [
    *[
        "-1",
        "0",
        "nan",
        "inf",
        "1e400",
        "99999999999999999999",
        "-0.0",
        "1,5",
        "0x10",
        "true",
        "None",
        "{}",
        "[]",
        "*",
        "~",
        ".",
        "..",
        "/",
        "/dev/null",
        "/dev/full/x",
        "/proc/self/mem",
    ],
    *[
        "nowhere",
        "a/b/c/d",
        "mdlm:",
        "mdlm:=",
        "mdlm:offset=1",
        "remasking:rate=2",
        "remasking:rate=x",
        "bpe-0",
        "bpe--5",
        "gpt2:nowhere",
        "gru:width=3",
    ],
    *["transformer:width=x", "--", "--nothing", "--help", "--json", "--steps", "-x"],
    *("", " ", "é" * 300, "x" * 5000, "\x1b[31m", "\ud800", "a\x00b"),
]


def damage_line(words: list[str], rng: random.Random) -> list[str]:
    words = list(words)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.randrange(1, len(words) + 1)
        what = rng.randrange(5)
        if what == 0 and at < len(words):
            del words[at]
        elif what == 1 and at < len(words) and len(words[at]) > 3:
            cut = rng.randrange(1, len(words[at]))
            words[at] = words[at][:cut] + words[at][cut + 1 :]
        elif what == 2:
            words.insert(at, rng.choice(ODD_WORDS))
        elif at < len(words):
            words[at] = rng.choice(ODD_WORDS)
    return words


def run_command(words: list[str]) -> tuple[str, str]:
    """The exit code must be 0 or 2, with one sentence on stderr where it is 2."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with time_limit(60), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = command(words)
    except SystemExit as leave:
        code = leave.code
    except TooSlow:
        return "too slow", " ".join(words)[:200]
    except BaseException as error:
        return "traceback", f"{type(error).__name__}: {error}: {' '.join(words)[:200]!r}"
    if "Traceback" in err.getvalue() or code not in (0, 2):
        return "traceback", f"exit {code}: {' '.join(words)[:200]!r}: {err.getvalue()[-200:]}"
    return "refused" if code else "harmless", ""


def fuzz_commands(count: int, seed: int, home: Path) -> Iterator[tuple[str, str]]:
    (home / "text.txt").write_text(TEXT)
    model = small("mdlm", "text8")
    model.extra_files[FILE] = Words(dict.fromkeys(TEXT.split(), 10)).to_bytes()
    model.save(home / "model")
    names = {"text": "text.txt", "model": "model", "run": "runs/begun", "out": "out"}
    before = Path.cwd()
    os.chdir(home)
    try:
        run_command(LINES[0].format(**names | {"out": "runs/begun"}).split())
        for i in range(count):
            rng = random.Random(f"command {seed} {i}")
            names["out"] = f"runs/{i}"
            yield run_command(damage_line(rng.choice(LINES).format(**names).split(), rng))
    finally:
        os.chdir(before)


# ---- requests --------------------------------------------------------------------------------------------------------

PATHS = [
    "/api/models",
    "/api/models/mdlm",
    "/api/models/nobody",
    "/api/chain",
    "/api/images",
    "/api/infill",
    "/api/correct",
    "/api/compare",
    "/api/candidates",
    "/api/blank",
    "/api/schedule",
    "/api/replay",
    "/v1/models",
    "/v1/models/mdlm",
    "/v1/completions",
    "/",
    "/nothing",
    "//",
    "/../x",
    "/api/%00",
    "/page.js",
]
WRITING = {
    "model": ["mdlm", "mdlm", "flex", "nobody"],
    "steps": [1, 2, 4],
    "seed": [0, 7],
    "sampler": ["", "confidence", "ancestral"],
    "temperature": [0, 1.0],
    "top_p": [0.5, 1],
    "template": ["the [MASK]t", "a[GAP]b"],
}
COMPLETIONS = {
    "prompt": ["the", ["a", "b"]],
    "suffix": ["mat"],
    "max_tokens": [1, 8],
    "stream": [True, False],
    "stream_options": [{"include_usage": True}],
    "n": [1, 2],
    "best_of": [1],
    "echo": [False],
}
OTHERS = {
    "text": ["teh cat"],
    "length": [4, 12],
    "samplers": [["confidence"]],
    "tokens": [[1, 2]],
    "ids": [[1, 2, 3]],
    "position": [0, 1],
    "label": [""],
    "at": [0],
}
FIELDS = WRITING | COMPLETIONS | OTHERS
SERVED = {  # what these views read
    "/api/chain": [*WRITING, "length"],
    "/api/infill": [*WRITING, "n"],
    "/api/replay": [*WRITING, "length"],
    "/api/correct": ["model", "text"],
    "/v1/completions": [*COMPLETIONS, "model", "temperature", "top_p", "seed"],
}


def random_request(rng: random.Random) -> tuple[str, str, dict[str, str], bytes]:
    """Method, path, headers and body, most of them wrong somewhere."""
    path = rng.choice(PATHS) if rng.randrange(3) else rng.choice(list(SERVED))
    wanted = rng.choice([SERVED.get(path, list(FIELDS)), list(FIELDS)])
    body: dict[str, Any] = {
        name: rng.choice(FIELDS[name]) for name in rng.sample(wanted, rng.randrange(1 + min(6, len(wanted))))
    }
    for _ in range(rng.randrange(3) if rng.randrange(2) else 0):
        body[rng.choice([*FIELDS, "x", "", "é"])] = rng.choice(ODD_VALUES)
    content = json.dumps(body).encode()
    what = rng.randrange(8)
    if what == 0:
        content = damage_bytes(content, rng)
    elif what == 1:
        content = rng.choice(
            [
                b"[" * 50_000,
                b"NaN",
                b'{"steps": NaN}',
                b'{"steps": 1e999}',
                b'"\\ud800"',
                b"\xff\xfe{}",
                b"9" * 5000,
                b" " * 300_000,
            ]
        )
    kind = "application/json" if rng.randrange(8) else rng.choice(["text/plain", "", "application/json; charset=x", "é"])
    headers = {"content-type": kind, "host": "127.0.0.1"}
    if rng.randrange(15) == 0:
        headers |= rng.choice(
            [{"host": "evil.example"}, {"origin": "http://evil.example"}, {"content-encoding": "gzip"}, {"cookie": "x" * 5000}]
        )
    method = "POST" if rng.randrange(6) else rng.choice(["GET", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
    return method, path, headers, content


POST = b"POST /api/chain HTTP/1.1\r\nhost: 127.0.0.1\r\n"
RAW = [
    b"",
    b"\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\x16\x03\x01\x02\x00",
    b"GET / HTTP/1.1\r\nhost: " + b"a" * 100_000,
    b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 5000 + b"\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
    b"POST / HTTP/1.1\nhost:127.0.0.1\n\n",
    POST + b"content-length: -1\r\n\r\n",
    POST + b"content-length: x\r\n\r\n",
    POST + b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    POST + b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\nzz\r\n",
    POST + b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}garbage after it",
    bytes(range(256)),
]


def ask_raw(address: tuple[str, int], content: bytes, rng: random.Random) -> tuple[str, str]:
    """Bytes that are no HTTP: they are answered by 4xx or by hanging up."""
    if rng.randrange(2) and content:
        content = damage_bytes(content, rng)
    try:
        with time_limit(), socket.create_connection(address, SECONDS) as connection:
            with contextlib.suppress(OSError):
                connection.sendall(content)
                connection.shutdown(socket.SHUT_WR)
            answer = b""
            with contextlib.suppress(ConnectionResetError):
                while part := connection.recv(65536):
                    answer += part
    except (TooSlow, TimeoutError):
        return "too slow", repr(content[:80])
    status = answer.split(b" ", 2)[1:2]
    return ("server error", repr(content[:80])) if status and status[0].startswith(b"5") else ("refused", "")


def fuzz_requests(count: int, seed: int, home: Path) -> Iterator[tuple[str, str]]:
    """A tenth of them bytes that are no HTTP, the others by a client."""
    import threading

    import httpx2 as httpx
    import uvicorn

    from unnoise.apps.studio import make_app
    from unnoise.apps.studio.server import server_config

    for name, method in (("mdlm", "mdlm"), ("flex", "flexmdm")):
        model = small(method, "text8")
        model.extra_files[FILE] = Words(dict.fromkeys(TEXT.split(), 10)).to_bytes()
        model.save(home / "served" / name)
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(server_config(make_app([home / "served" / "flex", home / "served" / "mdlm"]), log_level="critical"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    address = listener.getsockname()
    logged: list[str] = []

    class Tracebacks(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info:
                logged.append(repr(record.exc_info[1]))

    for name in ("uvicorn.error", "unnoise.apps.studio", "asyncio"):
        logging.getLogger(name).handlers = [Tracebacks()]
    with httpx.Client(base_url=f"http://127.0.0.1:{address[1]}", timeout=SECONDS) as client:
        for i in range(count):
            rng = random.Random(f"request {seed} {i}")
            if i % 10 == 0:
                yield ask_raw(address, rng.choice(RAW), rng)
                continue
            method, path, headers, content = random_request(rng)
            shown = f"{method} {path} {content[:120]!r}"
            try:
                answer = client.request(
                    method, path, headers={name: value.encode() for name, value in headers.items()}, content=content
                )
            except httpx.TimeoutException:
                yield "too slow", shown
                continue
            except httpx.HTTPError as error:
                yield "no answer", f"{type(error).__name__}: {shown}"
                continue
            if answer.status_code >= 500:
                yield "server error", f"{answer.status_code} {shown} {answer.text[:200]}"
            elif "Traceback" in answer.text and not path.startswith("/page"):
                yield "traceback", shown
            else:
                yield ("harmless" if answer.status_code < 400 else "refused"), ""
    yield from (("traceback", words) for words in logged)
    server.should_exit = True
    thread.join(10)


# ---- all of them -----------------------------------------------------------------------------------------------------

KINDS: dict[str, Callable[[int, int, Path], Iterator[tuple[str, str]]]] = {
    "models": fuzz_models,
    "states": fuzz_states,
    "images": fuzz_images,
    "commands": fuzz_commands,
    "requests": fuzz_requests,
}


def fuzz(kind: str, count: int, seed: int = 0) -> tuple[Counter[str], list[str]]:
    """How many cases ended how, and the failures."""
    found: Counter[str] = Counter()
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["UNNOISE_CACHE"] = str(Path(folder) / "cache")
        for i, (ended, words) in enumerate(KINDS[kind](count, seed, Path(folder))):
            found[ended] += 1
            if ended in FAILURES:
                failures.append(f"{kind} {i}: {ended}: {words}")
    return found, failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    wrong = []
    for kind in chosen.kinds:
        start, count = time.monotonic(), max(1, round(COUNTS[kind] * chosen.scale))
        found, failures = fuzz(kind, count, chosen.seed)
        wrong += failures
        print(f"{kind:9s} {count:5d} cases in {time.monotonic() - start:4.0f} s: {dict(found)}", flush=True)
        for line in failures[:20]:
            print("   ", line[:400], flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{len(wrong)} failures; memory at its peak {peak:.2f} GB")
    return int(bool(wrong) or peak > 1)


if __name__ == "__main__":
    sys.exit(main())
