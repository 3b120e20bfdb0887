"""The studio: what it answers, what it refuses, and that one request does not stop another."""

import asyncio
import itertools
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from starlette.testclient import TestClient

import unnoise
from studio_server import client_of, listening, raw, soon_idle, tiny_models
from unnoise.apps.filling import fill
from unnoise.apps.filling.word_filling import Filling
from unnoise.apps.plots.noise import denoise_from, model_path
from unnoise.apps.spelling import correct
from unnoise.apps.studio import make_app
from unnoise.apps.studio.jobs import JobQueue, QueueFull, ShareTaken
from unnoise.model.generate import GAP, MASK


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return tiny_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def client(folders: list[Path]) -> TestClient:
    return client_of(make_app(folders))


@pytest.fixture(scope="module")
def app(folders: list[Path]) -> Any:
    return make_app(folders)


@pytest.fixture(scope="module")
def address(app: Any) -> Iterator[str]:
    with listening(app) as address:
        yield address


def lines(client: TestClient, view: str, **body: Any) -> list[dict[str, Any]]:
    answer = client.post(f"/api/{view}", json=body)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


# ---- what it answers -------------------------------------------------------------------------------------------------


def test_the_page_comes_with_nothing_from_elsewhere(client: TestClient) -> None:
    for path in ("/", "/page.css", "/page.js"):
        answer = client.get(path)
        assert answer.status_code == 200 and "default-src 'none'" in answer.headers["content-security-policy"]
        assert "http://" not in answer.text.replace("http://www.w3.org/2000/svg", "") and "https://" not in answer.text


def test_the_models_and_what_they_can_do(client: TestClient) -> None:
    listed = client.get("/api/models").json()
    assert listed["default"] == "mdlm" and {"name": "ar", "method": "ar", "text": True} in listed["models"]
    about = {name: client.get(f"/api/models/{name}").json() for name in ("mdlm", "flexmdm", "ar")}
    names = {name: [sampler["name"] for sampler in one["samplers"]] for name, one in about.items()}
    assert "confidence" in names["mdlm"] and "left-to-right" not in names["mdlm"]
    assert names["ar"] == ["left-to-right"] and names["flexmdm"] == ["insertion", "insertion-confidence"]
    assert about["mdlm"]["corrects"] and not about["ar"]["corrects"]
    assert about["flexmdm"]["variable_length"] and about["mdlm"]["own_sampler"] == "ancestral"


def test_a_chain_is_the_models_own(client: TestClient, folders: list[Path]) -> None:
    model = unnoise.load(folders[-1])
    *frames, last = lines(client, "chain", steps=8, seed=3, length=12, sampler="confidence")
    wanted = list(model.chain(steps=8, seed=3, length=12, sampler="confidence"))
    assert [frame["ids"] for frame in frames] == [step.ids for step in wanted]
    assert last["text"] == model.generate(steps=8, seed=3, length=12, sampler="confidence")[0]
    assert 1 <= last["calls"] <= 8 and last["seconds"] >= 0
    shown: dict[str, str] = {}
    for frame, step in zip(frames, wanted, strict=True):
        shown |= frame["shown"]
        assert [shown[str(token)] for token in frame["ids"]] == step.tokens


@pytest.mark.parametrize("method", ["ar", "flexmdm", "genmd4", "udlm", "mdlm"])
def test_what_is_outside_the_blanks_stays(client: TestClient, folders: list[Path], method: str) -> None:
    template = f"The Cat {MASK * 3} on {GAP if method == 'flexmdm' else MASK * 2} mat!"
    model = unnoise.load(next(folder for folder in folders if folder.name == method))
    found = [line for line in lines(client, "infill", model=method, template=template, variants=2, steps=8) if "text" in line]
    assert [line["text"] for line in found] == [model.infill(template, steps=8, seed=seed)[0] for seed in (0, 1)]
    for line in found:
        assert line["text"].startswith("The Cat ") and line["text"].endswith(" mat!")
        assert "".join(piece["text"] for piece in line["pieces"]) == line["text"]


def test_words_are_filled_in_likeliest_first(client: TestClient, folders: list[Path]) -> None:
    text = "The [WORD] sat on a [WORD]!"
    model = unnoise.load(next(folder for folder in folders if folder.name == "mdlm"))
    found = lines(client, "infill", model="mdlm", template=text, variants=3)
    filling = Filling(model, text).finished()
    assert [line["text"] for line in found] == [filling.text(words) for words, _ in filling.ways(3)]
    words = [piece for piece in found[0]["pieces"] if piece["new"]]
    assert [(piece["text"], pytest.approx(piece["confidence"], abs=1e-5)) for piece in words] == [
        c[0] for c in fill(model, text)
    ]


def test_blanks_for_a_stretch_of_text(client: TestClient) -> None:
    assert client.post("/api/blank", json={"text": "cat"}).json() == {"blank": 3 * MASK}
    assert client.post("/api/blank", json={"text": "cat", "model": "flexmdm"}).json() == {"blank": GAP}


def test_candidates_are_about_the_position_as_if_it_were_blank(client: TestClient, folders: list[Path]) -> None:
    model = unnoise.load(folders[-1])
    ids = model.codec.encode("the cat").tolist()
    found = client.post("/api/candidates", json={"ids": ids, "place": 4, "t": 0.0}).json()["candidates"]
    ids[4] = model.process.vocab
    assert [token for token, _ in found] == [token for token, _ in model.candidates(ids, 4, 0.0)]
    assert 0 < found[0][1] < 1


def test_spelling_piece_by_piece_is_spelling_of_the_whole(client: TestClient, folders: list[Path]) -> None:
    text = ("the caat sat on teh mat and the dgo sat on the lgo while the brd sang in the teree. " * 8).strip()
    model = unnoise.load(folders[-1])
    wanted = correct(model, text, strength=0.9, keep=["dgo"])
    found = [edit for line in lines(client, "correct", text=text, strength=0.9, keep=["dgo"]) for edit in line["edits"]]
    assert len(found) > 8
    assert [(e["start"], e["before"], e["after"]) for e in found] == [(e.start, e.before, e.after) for e in wanted.edits]


def test_the_schedule(client: TestClient) -> None:
    found = client.post("/api/schedule", json={"model": "mdlm", "steps": 10}).json()
    assert len(found["counts"]) == 10 and abs(sum(found["counts"]) - 24) < 1e-6 and not found["exponents"]
    learned = client.post("/api/schedule", json={"model": "genmd4", "steps": 1}).json()
    assert len(learned["exponents"]) == 27 and len(learned["curves"]["α"]) == len(learned["t"])
    assert client.post("/api/schedule", json={"model": "ar"}).json()["curves"] == {}


def test_noise_and_the_way_back(client: TestClient, folders: list[Path]) -> None:
    body = {"text": "the cat sat on the mat", "seed": 3}
    model = unnoise.load(folders[-1])
    found = client.post("/api/noise", json=body).json()
    assert [state["t"] for state in found["states"]] == [i / 40 for i in range(41)]
    assert "".join(found["shown"][str(token)] for token in found["states"][0]["ids"]) == body["text"]
    masks = [{i for i, token in enumerate(state["ids"]) if token == 27} for state in found["states"]]
    assert all(early <= late for early, late in itertools.pairwise(masks)) and len(masks[40]) > 20
    steps = lines(client, "back", **body, moment=20, steps=8)
    path = model_path(model, body["text"], [i / 40 for i in range(41)], 3)
    wanted = list(denoise_from(model, path, unnoise.SamplingOptions(steps=8, seed=3), 20))
    assert [step["ids"] for step in steps] == [one.ids for one in wanted] and steps[-1]["t"] == 0
    other = client.post("/api/noise", json=body | {"noise": "nearest-neighbour", "model": "ar"}).json()["states"]
    assert other[0]["ids"] == found["states"][0]["ids"] and max(other[40]["ids"]) < 27
    about = {name: client.get(f"/api/models/{name}").json() for name in ("mdlm", "udlm", "ar", "flexmdm")}
    assert [about[name]["can_denoise_from"] for name in about] == [True, True, False, False]


def test_samplers_side_by_side(client: TestClient) -> None:
    names = ["ancestral", "first-hitting", "confidence"]
    found = {one["sampler"]: one for one in lines(client, "compare", samplers=names, steps=4, seed=1) if "text" in one}
    assert list(found) == names
    assert found["confidence"]["calls"] <= 4 and found["first-hitting"]["calls"] == 24
    assert all(len(one["text"]) == 24 and "distribution" in one for one in found.values())


def test_models_side_by_side(client: TestClient, folders: list[Path]) -> None:
    """Each text is the model's own of this seed and length, whatever the others do."""
    names = ["mdlm", "ar", "flexmdm"]
    found = lines(client, "side_by_side", models=names, length=9, seed=3)
    last = {one["name"]: one for one in found if "text" in one}
    assert list(last) == names and any("draft" in one for one in found)
    for folder in folders:
        if folder.name in names:
            assert last[folder.name]["text"] == unnoise.load(folder).generate(1, 9, seed=3)[0]
            assert last[folder.name]["calls"] > 0 and last[folder.name]["method"] == folder.name
    alone = lines(client, "side_by_side", models=["mdlm"], seed=3)[-1]
    assert len(alone["text"]) == 24, "as long as the model's texts are"


def test_a_chain_as_a_page(client: TestClient) -> None:
    page = client.post("/api/replay", json={"steps": 4}).json()["page"]
    assert page.startswith("<!doctype html>") and "seed 0" in page


# ---- what it refuses -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("chain", {"steps": 0}, 400, "whole number from 1 to 1024"),
        ("chain", {"steps": True}, 400, "whole number"),
        ("chain", {"steps": 10**9}, 400, "whole number"),
        ("chain", {"steps": "8"}, 400, "found '8'"),
        ("chain", {"length": 25}, 400, "from 1 to 24"),
        ("chain", {"temperature": -1}, 400, "number from 0 to 2"),
        ("chain", {"top_p": 0}, 400, "number from"),
        ("chain", {"seed": -1}, 400, "whole number"),
        ("chain", {"sampler": "gaussian"}, 400, "cannot sample with gaussian: use one of"),
        ("chain", {"sampler": "remasking:rate=2"}, 400, "Rate must lie in"),
        ("chain", {"sampler": "remasking:speed=2"}, 400, "no field 'speed'"),
        ("chain", {"label": "poem"}, 400, "must be one of"),
        ("chain", {"sampler": ["confidence"]}, 400, "found a list"),
        ("chain", {"stpes": 8}, 400, "'stpes' is unknown"),
        ("chain", {"template": "nothing blank"}, 400, "Nothing to fill in"),
        ("chain", {"template": MASK * 25}, 400, "at most 24 tokens"),
        ("chain", {"template": GAP}, 400, "variable length"),
        ("chain", {"template": "a" * 20_001}, 400, "20000 characters"),
        ("chain", {"model": "flexmdm", "template": f"a{GAP}" * 33}, 400, "32 gaps"),
        ("chain", {"template": "\ud800" + MASK}, 400, "half a character"),
        ("chain", {"model": "gpt"}, 404, "no model 'gpt'"),
        ("chain", {"model": "../mdlm"}, 404, "no model"),
        ("chain", {"model": "/etc"}, 404, "no model"),
        ("chain", [], 400, "JSON object"),
        ("infill", {}, 400, "'template' is missing"),
        ("infill", {"template": MASK, "variants": 99}, 400, "from 1 to 8"),
        ("infill", {"template": "[WORD] " * 9}, 400, "may have 8 marks [WORD], found 9"),
        ("infill", {"template": "a [WORD]", "model": "udlm"}, 400, "needs a model of masked noise"),
        ("correct", {"text": 5}, 400, "must be a text"),
        ("correct", {"text": "teh cat", "strength": 2}, 400, "number from 0 to 1"),
        ("correct", {"text": "teh cat", "keep": "teh"}, 400, "list"),
        ("correct", {"text": "teh cat", "model": "ar"}, 400, "masked or uniform"),
        ("compare", {"samplers": []}, 400, "at least one"),
        ("side_by_side", {"models": []}, 400, "'models' must name at least one of: ar"),
        ("side_by_side", {"models": ["mdlm", "nowhere"]}, 404, "There is no model 'nowhere'"),
        ("side_by_side", {"models": ["mdlm"], "length": 0}, 400, "'length' must be a whole number"),
        ("compare", {"samplers": ["nonsense"]}, 400, "Unknown sampler"),
        ("candidates", {"ids": [99], "place": 0}, 400, "from 0 to 27"),
        ("candidates", {"ids": [0] * 25, "place": 0}, 400, "at most 24 entries"),
        ("candidates", {"ids": [], "place": 3}, 400, "no position 3"),
        ("candidates", {"ids": [1], "place": 0, "model": "ar"}, 400, "no noised tokens"),
        ("noise", {}, 400, "'text' is missing"),
        ("noise", {"text": ""}, 400, "There is no text to noise"),
        ("noise", {"text": "a", "noise": "salt"}, 400, "must be one of , uniform, absorbing"),
        ("noise", {"text": "a" * 25, "noise": "uniform"}, 400, "24 tokens"),
        ("noise", {"text": "a", "model": "ar"}, 400, "Ar has no noise"),
        ("back", {"text": "a", "moment": 0}, 400, "from 1 to 40"),
        ("back", {"text": "a", "moment": 1, "model": "flexmdm"}, 400, "Flexmdm has no noise"),
        ("schedule", {"steps": None, "model": 3}, 400, "must be a text"),
        ("../v1/completions", {"prompt": f"a{MASK}"}, 400, "suffix"),
        ("../v1/completions", {"prompt": "a" * 24}, 400, "no room"),
        ("../v1/completions", {"prompt": "a", "max_tokens": 24}, 400, "from 1 to 23"),
        ("../v1/completions", {"prompt": "a", "n": 9}, 400, "from 1 to 8"),
        ("../v1/completions", {"prompt": "a", "logprobs": 3}, 400, "not supported"),
        ("../v1/completions", {"prompt": 3}, 400, "must be a text"),
        ("../v1/completions", {"model": "gpt-4", "prompt": "a"}, 404, "no model"),
    ],
)
def test_a_malformed_request_is_answered_with_a_sentence(
    client: TestClient, path: str, body: Any, status: int, says: str
) -> None:
    address = "/v1/completions" if path.endswith("completions") else f"/api/{path}"
    answer = client.post(address, content=json.dumps(body), headers={"content-type": "application/json"})
    message = answer.json()["error"]["message"]
    assert answer.status_code == status and says in message
    assert not message[0].islower() and message.endswith(".")
    assert answer.json()["error"].keys() == {"message", "type", "param", "code"}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b'{"steps": NaN}', b'{"steps": 1e999}'])
def test_what_is_not_json(client: TestClient, content: bytes) -> None:
    answer = client.post("/api/chain", content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 400 and answer.json()["error"]["message"]


def test_too_large_or_no_json_at_all(client: TestClient) -> None:
    large = client.post("/api/chain", content=b" " * 300_000, headers={"content-type": "application/json"})
    assert large.status_code == 413 and "larger" in large.json()["error"]["message"]
    form = client.post("/api/chain", content=b"{}", headers={"content-type": "text/plain"})
    assert form.status_code == 415 and "JSON" in form.json()["error"]["message"]


@pytest.mark.parametrize(
    "path", ["/../pyproject.toml", "/%2e%2e/app.py", "/app.py", "/api/models/..%2fmdlm", "/api/models/%2fetc"]
)
def test_no_path_leads_out(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404 and answer.json()["error"]["message"]


def test_the_wrong_verb(client: TestClient) -> None:
    assert client.get("/api/chain").status_code == 405 and client.get("/api/chain").json()["error"]["message"]


def test_folders_without_a_model(tmp_path: Path, folders: list[Path]) -> None:
    with pytest.raises(ValueError, match="holds no model"):
        make_app([tmp_path])
    with pytest.raises(ValueError, match="train one"):
        make_app([])
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "config.json").write_text("{")
    client = TestClient(make_app([*folders[:1], folders[0], damaged]), base_url="http://localhost")
    assert [one["name"] for one in client.get("/api/models").json()["models"]] == ["ar", "ar-2", "damaged"]
    answer = client.get("/api/models/damaged")
    assert answer.status_code == 500 and "cannot be opened" in answer.json()["error"]["message"]


# ---- one request beside another --------------------------------------------------------------------------------------


def test_the_queue_has_a_limit() -> None:
    async def scene() -> None:
        jobs = JobQueue(workers=1, most=2)
        started = [jobs.start(iter_forever()) for _ in range(2)]
        with pytest.raises(QueueFull):
            jobs.start(iter_forever())
        async for line in started[0]:
            if line["i"] > 20:
                break
        for job in started:
            job.stop()
        while jobs.under_way:
            await asyncio.sleep(0.01)
        jobs.close()

    def iter_forever() -> Any:
        i = 0
        while True:
            yield {"i": i}
            i += 1

    asyncio.run(asyncio.wait_for(scene(), 20))


def test_one_client_has_a_share() -> None:
    async def scene() -> None:
        jobs = JobQueue(workers=1, most=12)
        held = [jobs.start(iter_once(), "one") for _ in range(jobs.share)]
        with pytest.raises(ShareTaken):
            jobs.start(iter_once(), "one")
        other = jobs.start(iter_once(), "two")
        for job in (*held, other):
            assert [message async for message in job] == [{"i": 0}]
        jobs.start(iter_once(), "one").stop()  # the places are free again
        jobs.close()

    def iter_once() -> Any:
        yield {"i": 0}

    assert [JobQueue(1, most).share for most in (2, 6, 64)] == [2, 4, 32]
    asyncio.run(asyncio.wait_for(scene(), 20))


def test_a_client_with_too_many_requests_is_told_so(folders: list[Path]) -> None:
    app = make_app(folders[-1:], most=8)
    app.state.jobs.share = 0
    answer = client_of(app).post("/api/chain", json={})
    assert answer.status_code == 429 and "Too many requests at once" in answer.json()["error"]["message"]


def test_a_busy_studio_says_so(folders: list[Path]) -> None:
    client = TestClient(make_app(folders[-1:], most=0), base_url="http://localhost")
    answer = client.post("/api/chain", json={})
    assert answer.status_code == 503 and "busy" in answer.json()["error"]["message"]


def test_twenty_clients_half_of_which_leave(app: Any, address: str) -> None:
    def whole(seed: int) -> bytes:
        with raw(address, "/api/chain", {"steps": 40, "seed": seed}) as connection:
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def killed(seed: int) -> bytes:
        with raw(address, "/api/chain", {"steps": 1024, "seed": seed, "sampler": "metropolis"}) as connection:
            return connection.recv(100)

    with ThreadPoolExecutor(20) as pool:
        leaving = [pool.submit(killed, seed) for seed in range(10)]
        staying = [pool.submit(whole, seed) for seed in range(10)]
        answers = [one.result(timeout=30) for one in staying]
        assert all(one.result(timeout=30).startswith(b"HTTP/1.1 200") for one in leaving)
    assert all(b'"text":' in answer and b"error" not in answer for answer in answers)
    soon_idle(app)
    assert b'"text":' in whole(99)


def test_a_completion_ends_when_its_client_leaves(app: Any, address: str) -> None:
    body = {"prompt": "", "max_tokens": 24, "n": 8, "steps": 1024, "sampler": "metropolis"}
    with raw(address, "/v1/completions", body):
        while not app.state.jobs.under_way:
            time.sleep(0.01)
    soon_idle(app)


def test_a_slow_request_does_not_hold_up_another(address: str) -> None:
    slow = [raw(address, "/api/chain", {"steps": 1024, "sampler": "metropolis", "seed": seed}) for seed in range(4)]
    for connection in slow:
        assert connection.recv(100)
    start = time.monotonic()
    with raw(address, "/api/candidates", {"ids": [0, 1, 2], "place": 1}) as quick:
        assert b'"candidates"' in b"".join(iter(lambda: quick.recv(65536), b""))
    assert time.monotonic() - start < 2
    for connection in slow:
        connection.close()
