"""Models of images in the studio: what is drawn, what is kept, what is refused, and the page."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from starlette.testclient import TestClient

import unnoise
from browser import choose_model, chromium, opened, reload, run, wait_for_frames
from studio_server import client_of, listening, tiny
from unnoise.apps.images import half
from unnoise.apps.studio import make_app, server
from unnoise.cli.main import main
from unnoise.data import Pixels

HALVES = ("upper", "lower", "left", "right")


def tiny_images(folder: Path, method: str = "mdlm", shape: tuple[int, ...] = (4, 6), levels: int = 5) -> Path:
    """Save a small image model with random weights."""
    codec = Pixels(shape, levels)
    model = unnoise.Model.build(method, codec, length=int(np.prod(shape)), width=16, depth=1, heads=2, labels=3)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    model.save(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    home = tmp_path_factory.mktemp("models")
    colour = tiny_images(home / "colour", "udlm", (3, 2, 3), 256)
    return [tiny("mdlm", home), tiny_images(home / "large", shape=(64, 64)), colour, tiny_images(home / "grey")]


@pytest.fixture(scope="module")
def client(folders: list[Path]) -> TestClient:
    return client_of(make_app(folders))


def lines(client: TestClient, view: str, **body: Any) -> list[dict[str, Any]]:
    answer = client.post(f"/api/{view}", json=body)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


# ---- what is drawn --------------------------------------------------------------------------------------------------


def test_a_model_of_images_is_described(client: TestClient) -> None:
    assert [one["name"] for one in client.get("/api/models").json()["models"]] == ["mdlm", "large", "colour", "grey"]
    about = {name: client.get(f"/api/models/{name}").json() for name in ("mdlm", "large", "colour", "grey")}
    assert about["mdlm"]["image"] is None and about["grey"]["labels"] == ["0", "1", "2"]
    assert about["grey"]["image"] == {"height": 4, "width": 6, "channels": 1, "levels": 5, "most": 16}
    assert about["colour"]["image"] == {"height": 3, "width": 2, "channels": 3, "levels": 256, "most": 16}
    assert about["large"]["image"]["most"] == 2


@pytest.mark.parametrize("name", ["grey", "colour"])
def test_images_are_the_models_own(client: TestClient, folders: list[Path], name: str) -> None:
    model = unnoise.load(next(folder for folder in folders if folder.name == name))
    options = {"steps": 5, "seed": 3, "label": "1", "guidance_scale": 2}
    *states, cost = lines(client, "images", model=name, images=3, **options)
    drawn = [model.codec.decode_image(row) for row in states[-1]["rows"]]  # type: ignore[attr-defined]
    assert np.array_equal(drawn, model.draw(3, **options))  # type: ignore[arg-type]
    assert len(states) == 6 and states[0]["t"] == 1 and states[-1]["t"] == 0
    assert cost["calls"] >= 5 and cost["seconds"] >= 0


@pytest.mark.parametrize("given", HALVES)
def test_the_half_that_is_given_stays(client: TestClient, given: str) -> None:
    ids = [i % 5 for i in range(24)]
    kept = half((4, 6), given).reshape(-1)
    *states, _ = lines(client, "images", images=4, ids=ids, given=given, steps=4)
    for state in states:
        assert all(row[i] == ids[i] for row in state["rows"] for i in range(24) if kept[i])
    ends = np.array(states[-1]["rows"])
    assert ends.max() < 5 and len(np.unique(ends, axis=0)) > 1


def test_samplers_compared_by_images(client: TestClient, folders: list[Path]) -> None:
    found = lines(client, "compare", samplers=["ancestral", "confidence"], images=2, steps=4, seed=1, label="2")
    ends = {line["sampler"]: line for line in found if "calls" in line}
    assert list(ends) == ["ancestral", "confidence"] and ends["confidence"]["calls"] <= 4
    model = unnoise.load(folders[-1])
    drawn = model.draw(2, sampler="confidence", steps=4, seed=1, label="2")
    assert np.array_equal([model.codec.decode_image(row) for row in ends["confidence"]["rows"]], drawn)  # type: ignore[attr-defined]


def test_the_schedule_of_images(client: TestClient) -> None:
    assert abs(sum(client.post("/api/schedule", json={"steps": 6}).json()["counts"]) - 24) < 1e-6


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("chain", {}, "grey is a model of images: it reads and writes no text"),
        ("infill", {"template": "[MASK]"}, "is a model of images"),
        ("correct", {"text": "teh"}, "is a model of images"),
        ("blank", {"text": "teh"}, "is a model of images"),
        ("replay", {}, "is a model of images"),
        ("candidates", {"ids": [0], "place": 0}, "is a model of images"),
        ("images", {"model": "mdlm"}, "mdlm is a model of text: it draws no images"),
        ("images", {"images": 17}, "from 1 to 16"),
        ("images", {"model": "large", "images": 5}, "from 1 to 2"),
        ("images", {"given": "middle"}, "must be one of"),
        ("images", {"given": "upper"}, "'ids' is missing"),
        ("images", {"given": "upper", "ids": [0] * 23}, "must have 24 entries"),
        ("images", {"given": "upper", "ids": [5] * 24}, "from 0 to 4"),
        ("images", {"ids": [0] * 24}, "'ids' is unknown"),
        ("images", {"label": "7"}, "must be one of"),
        ("images", {"length": 3}, "'length' is unknown"),
        ("compare", {"samplers": ["ancestral"], "template": "[MASK]"}, "'template' is unknown"),
        ("compare", {"samplers": ["left-to-right"]}, "cannot sample with left-to-right"),
    ],
)
def test_what_makes_no_sense_is_refused(client: TestClient, path: str, body: dict[str, Any], says: str) -> None:
    answer = client.post(f"/api/{path}", json=body)
    assert answer.status_code == 400 and says in answer.json()["error"]["message"]


def test_the_command_line_shows_models_of_images(folders: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    apps: list[Any] = []

    class NotRun:
        def __init__(self, config: Any):
            apps.append(config.app)

        def run(self, sockets: list[Any]) -> None:
            sockets[0].close()

    monkeypatch.setattr(server.uvicorn, "Server", NotRun)
    assert main(["studio", "--model", str(folders[-1]), "--port", "0"]) == 0
    assert client_of(apps[0]).get("/api/models").json()["default"] == "grey"
    monkeypatch.chdir(tmp_path)
    tiny_images(tmp_path / "runs" / "pictures")
    assert main(["studio", "--port", "0"]) == 0
    assert client_of(apps[1]).get("/api/models").json()["default"] == "pictures"
    assert "pictures" not in [model["id"] for model in client_of(apps[1]).get("/v1/models").json()["data"]]


# ---- the page -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def address(folders: list[Path]) -> Iterator[str]:
    with listening(make_app(folders)) as address:
        yield address


@pytest.fixture
def page(address: str, browser: Any) -> Iterator[Any]:
    with opened(browser, f"http://{address}/") as page:
        yield page


def pixels(page: Any, selector: str) -> list[list[int]]:
    """Return red, green, blue and opacity of all pixels of each canvas."""
    script = "all => all.map(one => [...one.getContext('2d').getImageData(0, 0, one.width, one.height).data])"
    return page.eval_on_selector_all(f"{selector} canvas", script)


def test_images_emerge_on_the_page(page: Any, folders: list[Path]) -> None:
    assert "Images of 6 × 4 pixels, 5 levels" in page.inner_text("#about")
    assert page.is_hidden("#form-chain [name=template]") and page.is_hidden("#form-chain [name=length]")
    page.fill("#form-chain [name=images]", "3")
    page.fill("#form-chain [name=steps]", "5")
    page.select_option("#form-chain [name=label]", "1")
    page.fill("#form-chain [name=guidance_scale]", "2")
    run(page, "chain")
    shown = np.array(pixels(page, "#pictures")).reshape(3, 4, 6, 4)
    drawn = unnoise.load(folders[-1]).draw(3, steps=5, label="1", guidance_scale=2.0)
    assert np.array_equal(shown[..., :3], np.repeat(drawn[..., None], 3, -1)) and (shown[..., 3] == 255).all()
    assert page.is_hidden("#canvas") and page.is_visible("#legend") and "Images from noise" in page.title()
    page.focus("#moment")
    page.keyboard.press("Home")
    assert not np.array(pixels(page, "#pictures"))[:, 3::4].any()  # nothing is there yet
    reload(page)
    assert np.array_equal(np.array(pixels(page, "#pictures")).reshape(shown.shape), shown)


def test_a_half_is_kept_on_the_page(page: Any) -> None:
    page.click("nav a[href='#infill']")
    assert page.is_visible("#no-source") and page.is_hidden("#editor")
    run(page, "infill")
    assert "no image yet" in page.inner_text("#error")
    page.click("nav a[href='#chain']")
    page.fill("#form-chain [name=steps]", "5")
    run(page, "chain")
    page.locator("#pictures button").nth(1).click()
    page.wait_for_selector("#source canvas")
    whole = np.array(pixels(page, "#pictures")[1]).reshape(4, 6, 4)
    for given in HALVES:
        page.select_option("#form-infill [name=given]", given)
        there = np.array(pixels(page, "#source")[0]).reshape(4, 6, 4)
        assert np.array_equal(there[..., 3] == 255, half((4, 6), given))
    page.fill("#form-infill [name=steps]", "5")
    page.fill("#form-infill [name=variants]", "3")
    run(page, "infill")
    found = np.array(pixels(page, "#painted")).reshape(3, 4, 6, 4)
    assert (found[:, :, 3:] == whole[:, 3:]).all() and (found[..., 3] == 255).all()
    reload(page)
    assert np.array_equal(np.array(pixels(page, "#painted")).reshape(found.shape), found)
    page.locator("#painted button").nth(2).click()
    assert np.array_equal(np.array(pixels(page, "#source")[0]).reshape(4, 6, 4)[:, 3:], found[2][:, 3:])


def test_an_image_that_is_not_whole_is_not_chosen(page: Any) -> None:
    page.fill("#form-chain [name=steps]", "5")
    run(page, "chain")
    page.focus("#moment")
    page.keyboard.press("Home")
    page.locator("#pictures button").first.click()
    assert "not complete" in page.inner_text("#error") and page.is_visible("#view-chain")


def test_samplers_and_schedule_and_spelling_of_images_on_the_page(page: Any) -> None:
    page.click("nav a[href='#samplers']")
    page.fill("#form-samplers [name=steps]", "4")
    page.fill("#form-samplers [name=images]", "2")
    run(page, "samplers")
    assert page.locator(".result").count() == 3 and page.locator(".result canvas").count() == 6
    assert "network calls" in page.locator(".result").first.inner_text()
    page.click("nav a[href='#schedule']")
    page.wait_for_selector("#charts svg")
    assert "in an image of 24" in page.inner_text("#charts")
    page.click("nav a[href='#spelling']")
    assert page.is_disabled("#form-spelling .run") and "a model of images" in page.inner_text("#no-spelling")


def test_between_models_of_text_and_of_images(page: Any) -> None:
    choose_model(page, "colour")
    page.fill("#form-chain [name=images]", "16")
    run(page, "chain")
    assert page.locator("#pictures canvas").count() == 16
    choose_model(page, "mdlm")
    assert page.is_hidden("#pictures") and page.is_visible("#form-chain [name=template]")
    assert page.input_value("#form-chain [name=length]") == "24"
    run(page, "chain")
    assert page.locator("#canvas span").count() == 24
    choose_model(page, "large")
    assert page.input_value("#form-chain [name=images]") == "2" and page.is_hidden("#canvas")
    page.fill("#form-chain [name=steps]", "300")
    page.click("#form-chain .run")
    wait_for_frames(page, 3)
    reload(page)
    wait_for_frames(page, 3)
    run(page, "chain")
    assert page.inner_text("#form-chain .status") == "Stopped."
