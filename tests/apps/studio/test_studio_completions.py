"""Completions: what the endpoint answers and refuses, by hand and with OpenAI's own client."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from starlette.testclient import TestClient

import unnoise
from studio_server import client_of, listening, tiny
from unnoise.apps.studio import make_app
from unnoise.data import Pixels


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return a model of variable length, one of fixed length and, saved last, one of images."""
    home = tmp_path_factory.mktemp("models")
    unnoise.Model.build("mdlm", Pixels((2, 2), 3), length=4, width=8, depth=1, heads=2).save(home / "images")
    return [tiny("flexmdm", home), tiny("bd3lm", home), tiny("mdlm", home), home / "images"]


@pytest.fixture(scope="module")
def client(folders: list[Path]) -> TestClient:
    return client_of(make_app(folders))


@pytest.fixture(scope="module")
def openai_client(folders: list[Path]) -> Iterator[Any]:
    """OpenAI's own client, talking to a studio."""
    openai = pytest.importorskip("openai")
    with listening(make_app(folders)) as address:
        yield openai.OpenAI(base_url=f"http://{address}/v1", api_key="x", max_retries=0)


# ---- by hand --------------------------------------------------------------------------------------------------------


def test_completions(client: TestClient) -> None:
    body = {"model": "mdlm", "prompt": "The cat ", "suffix": " mat", "max_tokens": 6, "n": 2, "seed": 5, "temperature": 0.5}
    found = client.post("/v1/completions", json=body | {"user": "someone"}).json()
    assert found["object"] == "text_completion" and found["model"] == "mdlm"
    assert [choice["index"] for choice in found["choices"]] == [0, 1]
    assert all(len(choice["text"]) == 6 and choice["finish_reason"] == "length" for choice in found["choices"])
    assert found["usage"] == {"prompt_tokens": 12, "completion_tokens": 12, "total_tokens": 24}
    assert client.post("/v1/completions", json=body).json()["choices"] == found["choices"]
    stop = found["choices"][0]["text"][2]
    cut = client.post("/v1/completions", json=body | {"stop": stop}).json()["choices"][0]
    assert cut["text"] == found["choices"][0]["text"].split(stop)[0] and cut["finish_reason"] == "stop"


def test_what_a_model_recommends_holds_where_a_request_says_nothing(tmp_path: Path) -> None:
    model = unnoise.load(tiny("mdlm", tmp_path))
    model.sampling = {"sampler": "confidence", "steps": 3, "temperature": 0, "top_p": 0.93}
    model.save(tmp_path / "own")
    studio = client_of(make_app([tmp_path / "own"]))
    about = studio.get("/api/models/own").json()
    assert about["sampling"] == model.sampling and about["own_sampler"] == "confidence"

    def written(**fields: Any) -> str:
        body = {"prompt": "the ", "max_tokens": 12, "seed": 3} | fields
        return studio.post("/v1/completions", json=body).json()["choices"][0]["text"]

    plain = {"sampler": "ancestral", "steps": 16, "temperature": 1, "top_p": 1}
    assert written() == written(**model.sampling) != written(**plain)
    loaded = unnoise.load(tmp_path / "own")
    assert "the " + written() == loaded.complete("the ", length=16, seed=3)[0]
    assert "the " + written(**plain) == loaded.complete("the ", length=16, seed=3, **plain)[0]  # pyright: ignore
    *_, last = studio.post("/api/chain", json={"length": 8}).text.strip().splitlines()
    assert json.loads(last)["calls"] <= 3


def test_completions_as_a_stream(client: TestClient) -> None:
    body = {"prompt": ["the"], "max_tokens": 4, "n": 2, "seed": 5, "stream": True}
    events = client.post("/v1/completions", json=body).text.strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    found = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    assert [event["choices"][0]["index"] for event in found] == [0, 1]
    whole = client.post("/v1/completions", json=body | {"stream": False}).json()
    assert [event["choices"][0] for event in found] == whole["choices"]


def test_what_block_diffusion_writes_comes_block_by_block(client: TestClient) -> None:
    body = {"model": "bd3lm", "prompt": "the", "max_tokens": 9, "seed": 5, "stream": True, "echo": True}
    events = client.post("/v1/completions", json=body).text.strip().split("\n\n")
    found = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events[:-1]]
    assert len(found) > 2 and [choice["finish_reason"] for choice in found] == [None] * (len(found) - 1) + ["length"]
    whole = client.post("/v1/completions", json=body | {"stream": False}).json()["choices"][0]
    assert "".join(choice["text"] for choice in found) == whole["text"] and whole["text"].startswith("the")
    stopped = client.post("/v1/completions", json=body | {"stop": whole["text"][-1]}).text
    assert stopped.count("data: {") == 1  # a stop sequence may begin in the text before it


@pytest.fixture(scope="module")
def by_pieces(tmp_path_factory: pytest.TempPathFactory) -> tuple[unnoise.Model, TestClient]:
    """Return a briefly trained autoregressive model over byte pairs, in which a blank belongs to the next word."""
    texts = ["the cat sat on the mat. the dog ran home, and the sun was in the sky."] * 30
    model = unnoise.Model.build("ar", unnoise.codec("bpe-300", texts), length=32, width=16, depth=1, heads=2)
    unnoise.train(model, texts, steps=20, loss="fast", eval_windows=2)
    model.save(folder := tmp_path_factory.mktemp("pieces") / "pieces")
    return model, client_of(make_app([folder]))


@pytest.mark.parametrize("suffix", ["ran home.", " ran home.", ", and"])
def test_a_suffix_is_read_as_it_is_counted(by_pieces: tuple[unnoise.Model, TestClient], suffix: str) -> None:
    """Also one that begins with a word: the blank before it, which the model reads, is the end of what comes back."""
    model, client = by_pieces
    read = suffix if suffix[0] in " ," else f" {suffix}"
    given = len(model.codec.encode("the dog")) + len(model.codec.encode(read))
    body = {"prompt": "the dog", "suffix": suffix, "seed": 3, "max_tokens": model.length - given}
    found = client.post("/v1/completions", json=body).json()
    assert found["usage"]["prompt_tokens"] == given and found["usage"]["completion_tokens"] <= body["max_tokens"]
    whole = "the dog" + found["choices"][0]["text"] + suffix
    assert whole == model.complete("the dog", suffix, seed=3)[0] and whole.endswith(read)


def test_a_stream_loses_no_blank(by_pieces: tuple[unnoise.Model, TestClient]) -> None:
    _, client = by_pieces
    for seed in range(6):
        body = {"prompt": "the cat ", "max_tokens": 12, "seed": seed}
        events = client.post("/v1/completions", json=body | {"stream": True}).text.strip().split("\n\n")
        pieces = [json.loads(event.removeprefix("data: "))["choices"][0]["text"] for event in events[:-1]]
        assert len(pieces) > 1
        assert "".join(pieces) == client.post("/v1/completions", json=body).json()["choices"][0]["text"]


def test_a_model_of_variable_length_completes_with_at_most_so_many(client: TestClient) -> None:
    found = client.post("/v1/completions", json={"model": "flexmdm", "prompt": "the", "suffix": "mat", "max_tokens": 5}).json()
    assert len(found["choices"][0]["text"]) <= 5


def test_the_models_as_openai_lists_them(client: TestClient) -> None:
    found = client.get("/v1/models").json()
    assert found["object"] == "list" and [model["id"] for model in found["data"]] == ["flexmdm", "bd3lm", "mdlm"]
    assert client.get("/v1/models/mdlm").json() == found["data"][-1]
    missing = client.get("/v1/models/images")  # it writes no text
    assert missing.status_code == 404 and missing.json()["error"]["code"] == "model_not_found"


def test_a_choice_is_a_row_of_the_seed(client: TestClient, folders: list[Path]) -> None:
    body = {"prompt": "The cat ", "suffix": " mat", "max_tokens": 6, "n": 3, "seed": 5, "steps": 8}
    found = client.post("/v1/completions", json=body).json()["choices"]
    wanted = unnoise.load(folders[2]).complete("The cat ", " mat", 18, 3, seed=5, steps=8)
    assert [f"The cat {choice['text']} mat" for choice in found] == wanted


def test_best_of_takes_the_surest(client: TestClient, folders: list[Path]) -> None:
    body = {"prompt": "a", "max_tokens": 8, "seed": 5, "steps": 8}
    found = client.post("/v1/completions", json=body | {"n": 2, "best_of": 6}).json()
    model = unnoise.load(folders[2])
    sure: dict[str, float] = {}
    for row in range(6):
        *_, last = model.chain(template="a" + 8 * "[MASK]", row=row, seed=5, steps=8)
        sure["".join(last.tokens[1:])] = sum(last.confidences[1:]) / 8
    best = sorted(sure, key=lambda text: -sure[text])[:2]
    assert [choice["text"] for choice in found["choices"]] == best and [one["index"] for one in found["choices"]] == [0, 1]
    assert found["usage"]["completion_tokens"] == 48  # all that were drawn


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"tempreature": 1}, "tempreature", "unknown"),
        ({"logprobs": 0}, "logprobs", "not supported"),
        ({"logit_bias": {"5": 1}}, "logit_bias", "not supported"),
        ({"presence_penalty": 0.5}, "presence_penalty", "not supported"),
        ({"frequency_penalty": -1}, "frequency_penalty", "not supported"),
        ({"n": 3, "best_of": 2}, "best_of", "from 3 to 20"),
        ({"best_of": 2, "stream": True}, "best_of", "cannot be streamed"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "goes with stream"),
        ({"stream": True, "stream_options": {"usage": True}}, "stream_options", "'usage' is unknown"),
        ({"stream": True, "stream_options": True}, "stream_options", "JSON object"),
        ({"stream": 1}, "stream", "true or false"),
        ({"prompt": []}, "prompt", "at least one text"),
        ({"prompt": ["a"] * 17}, "prompt", "at most 16"),
        ({"prompt": [1, 2]}, "prompt", "must be a text"),
        ({"prompt": ["a", "a" * 24]}, "prompt", "no room"),
        ({"prompt": ["a", "a" * 20], "max_tokens": 5}, "max_tokens", "from 1 to 4"),
        ({"stop": ["a"] * 5}, "stop", "at most 4"),
        ({"echo": "yes"}, "echo", "true or false"),
        ({"user": 5}, "user", "must be a text"),
        ({"steps": 0}, "steps", "from 1 to"),
        ({"model": "images"}, "model", "is a model of images"),
    ],
)
def test_what_is_refused_is_named(client: TestClient, body: dict[str, Any], param: str, says: str) -> None:
    answer = client.post("/v1/completions", json={"prompt": "a"} | body)
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["type"] == "invalid_request_error"
    assert error["param"] == param and says in error["message"] and error["code"] is None


def test_what_asks_for_nothing_is_accepted(client: TestClient) -> None:
    neutral = {"logprobs": None, "logit_bias": {}, "presence_penalty": 0, "frequency_penalty": 0.0, "user": "someone"}
    plain = {"prompt": "a", "seed": 1, "suffix": None, "best_of": 1}
    found = client.post("/v1/completions", json=plain | neutral).json()
    assert found["choices"] == client.post("/v1/completions", json=plain).json()["choices"] and found["model"] == "mdlm"


# ---- with OpenAI's client -------------------------------------------------------------------------------------------


def test_the_client_lists_models(openai_client: Any) -> None:
    import openai

    assert [model.id for model in openai_client.models.list()] == ["flexmdm", "bd3lm", "mdlm"]
    assert openai_client.models.retrieve("mdlm").owned_by == "unnoise"
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-4'") as caught:
        openai_client.models.retrieve("gpt-4")
    assert caught.value.code == "model_not_found" and caught.value.param == "model"


def test_the_client_completes(openai_client: Any) -> None:
    options = {"model": "mdlm", "max_tokens": 6, "temperature": 0.7, "top_p": 0.9, "seed": 5, "user": "me"}
    found = openai_client.completions.create(prompt="The cat ", suffix=" mat", n=2, **options)
    assert found.object == "text_completion" and found.id.startswith("cmpl-") and found.created > 0
    assert [choice.index for choice in found.choices] == [0, 1] and found.choices[0].logprobs is None
    assert all(len(choice.text) == 6 and choice.finish_reason == "length" for choice in found.choices)
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (12, 12, 24)
    stop = found.choices[0].text[3]
    cut = openai_client.completions.create(prompt="The cat ", suffix=" mat", stop=[stop], **options)
    assert cut.choices[0].text == found.choices[0].text.split(stop)[0] and cut.choices[0].finish_reason == "stop"
    assert openai_client.completions.create(prompt="a", n=2, best_of=4, **options).usage.completion_tokens == 24


def test_the_client_completes_several_prompts(openai_client: Any) -> None:
    options = {"model": "mdlm", "max_tokens": 4, "seed": 3, "n": 2}
    together = openai_client.completions.create(prompt=["the cat", "a dog sat"], echo=True, **options)
    alone = [openai_client.completions.create(prompt=prompt, **options) for prompt in ("the cat", "a dog sat")]
    assert [choice.index for choice in together.choices] == [0, 1, 2, 3]
    wanted = [
        prompt + choice.text for prompt, one in zip(("the cat", "a dog sat"), alone, strict=True) for choice in one.choices
    ]
    assert [choice.text for choice in together.choices] == wanted
    assert together.usage.prompt_tokens == 16 and together.usage.completion_tokens == 16


@pytest.mark.parametrize("with_usage", [True, False])
def test_the_client_streams(openai_client: Any, with_usage: bool) -> None:
    options = {"model": "mdlm", "prompt": ["the", "a"], "max_tokens": 4, "seed": 3, "n": 2}
    extra = {"stream_options": {"include_usage": True}} if with_usage else {}
    chunks = list(openai_client.completions.create(stream=True, **options, **extra))
    whole = openai_client.completions.create(**options)
    assert [choice for chunk in chunks for choice in chunk.choices] == whole.choices
    assert len({chunk.id for chunk in chunks}) == 1 and all(chunk.object == "text_completion" for chunk in chunks)
    if with_usage:
        assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
        assert all(chunk.usage is None for chunk in chunks[:-1])
    else:
        assert len(chunks) == 4 and all(chunk.usage is None for chunk in chunks)


def test_the_client_is_told_what_is_wrong(openai_client: Any) -> None:
    import openai

    for wrong, says in (
        ({"logprobs": 2}, "'logprobs' is not supported"),
        ({"max_tokens": 100}, "from 1 to 23"),
        ({"extra_body": {"top_k": 5}}, "'top_k' is unknown"),
        ({"prompt": [1, 2]}, "must be a text"),
    ):
        with pytest.raises(openai.BadRequestError, match=says) as caught:
            openai_client.completions.create(**({"model": "mdlm", "prompt": "a"} | wrong))
        assert caught.value.type == "invalid_request_error" and caught.value.param in {*wrong, "top_k"}
    with pytest.raises(openai.NotFoundError, match="no model"):
        openai_client.completions.create(model="gpt-4", prompt="a")


def test_the_client_sends_the_token_as_its_key(folders: list[Path]) -> None:
    openai = pytest.importorskip("openai")
    with listening(make_app(folders[1:2], token="the-token")) as address:
        keys = [openai.OpenAI(base_url=f"http://{address}/v1", api_key=key, max_retries=0) for key in ("the-token", "x")]
        assert [model.id for model in keys[0].models.list()] == ["bd3lm"]
        with pytest.raises(openai.AuthenticationError, match="needs its token"):
            keys[1].models.list()
