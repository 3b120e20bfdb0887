"""The page of the studio in a browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

import unnoise
from browser import choose_model, chromium, opened, reload, run, wait_for_frames
from studio_server import listening, soon_idle, tiny_models
from unnoise.apps.studio import make_app
from unnoise.apps.studio.server import TimedProtocol


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return tiny_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def app(folders: list[Path]) -> Any:
    return make_app(folders)


@pytest.fixture(scope="module")
def address(app: Any) -> Iterator[str]:
    with listening(app) as address:
        yield address


@pytest.fixture
def page(address: str, browser: Any) -> Iterator[Any]:
    with opened(browser, f"http://{address}/") as page:
        yield page


@pytest.fixture(scope="module")
def slow_app(folders: list[Path]) -> Any:
    """Return a studio whose default model takes seconds for a chain (up to 256 calls), so that a slow browser can stop it."""
    folder = folders[0].parent / "slow"
    unnoise.Model.build("mdlm", width=320, depth=8, heads=5, length=256).save(folder)
    return make_app([folders[-1], folder])


@pytest.fixture(scope="module")
def slow_address(slow_app: Any) -> Iterator[str]:
    with listening(slow_app) as address:
        yield address


@pytest.fixture
def slow_page(slow_address: str, browser: Any) -> Iterator[Any]:
    with opened(browser, f"http://{slow_address}/") as page:
        yield page


def test_the_chain_in_a_browser(page: Any) -> None:
    page.fill("#form-chain [name=steps]", "10")
    run(page, "chain")
    assert page.get_attribute("#moment", "max") == "10" and page.locator("#canvas span").count() == 24
    text = page.text_content("#canvas")
    assert "·" not in text
    page.focus("#moment")
    page.keyboard.press("Home")
    assert set(page.text_content("#canvas")) == {"·"}
    page.keyboard.press("End")
    page.locator("#canvas span").first.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#candidates li")
    assert "position 2" in page.inner_text("#candidates")
    page.click("#play")
    assert page.inner_text("#play") == "Pause"
    page.click("#play")
    with page.expect_download() as download:
        page.click("#save")
    assert "<!doctype html>" in Path(download.value.path()).read_text()
    reload(page)
    assert page.text_content("#canvas") == text and page.input_value("#form-chain [name=steps]") == "10"


def test_a_chain_is_stopped_on_the_way(slow_page: Any) -> None:
    page = slow_page
    page.fill("#form-chain [name=steps]", "1024")
    page.select_option("#form-chain [name=sampler]", "metropolis")
    page.click("#form-chain .run")
    page.wait_for_selector("#form-chain .stop")
    page.wait_for_selector("#moment[max]", state="attached")  # a first canvas has come
    run(page, "chain")
    assert int(page.get_attribute("#moment", "max")) < 1000 and page.is_hidden("#error")
    assert page.inner_text("#form-chain .status") == "Stopped."
    reload(page)
    assert page.inner_text("#form-chain .status") == "Stopped." and page.inner_text("#form-chain .run") == "Generate"
    page.fill("#form-chain [name=steps]", "4")
    run(page, "chain")
    assert page.inner_text("#form-chain .status") == ""


def test_filling_in_in_a_browser(page: Any) -> None:
    page.click("nav a[href='#infill']")
    page.fill("#editor", "The cat sat on mats")
    page.evaluate("document.getElementById('editor').setSelectionRange(4, 7)")
    page.focus("#editor")
    page.keyboard.press("Alt+KeyB")
    page.wait_for_selector("#back:not([disabled])")
    assert page.input_value("#editor") == "The ░░░ sat on mats"
    run(page, "infill")
    assert page.locator("#variants li").count() == 4
    variant = page.locator("#variants p").nth(1).text_content()
    assert variant.startswith("The ") and variant.endswith(" sat on mats")
    page.locator("#variants button").nth(1).click()
    assert page.input_value("#editor") == variant
    page.click("#back")
    assert page.input_value("#editor") == "The ░░░ sat on mats"
    reload(page)
    assert page.is_visible("#editor") and page.input_value("#editor") == "The ░░░ sat on mats"
    assert page.locator("#variants li").count() == 4


def test_words_in_a_browser(page: Any) -> None:
    page.click("nav a[href='#infill']")
    page.fill("#editor", "The cat, sat on mats")
    page.evaluate("document.getElementById('editor').setSelectionRange(4, 12)")
    page.click("#blank-words")
    assert page.input_value("#editor") == "The [WORD], [WORD] on mats"
    run(page, "infill")
    assert page.locator("#variants li").count() == 4 and page.locator("#variants li").first.locator("ins").count() == 2
    variant = page.locator("#variants p").first.text_content()
    assert variant.startswith("The ") and variant.endswith(" on mats")


def test_a_gap_in_a_browser(page: Any) -> None:
    page.select_option("#model", "flexmdm")
    page.wait_for_selector("select[name=sampler] option[value=insertion]", state="attached")
    page.click("nav a[href='#infill']")
    page.fill("#editor", "The cat sat")
    page.evaluate("document.getElementById('editor').setSelectionRange(4, 7)")
    page.click("#blank")
    page.wait_for_selector("#back:not([disabled])")
    assert page.input_value("#editor") == "The [GAP] sat"
    run(page, "infill")
    variant = page.locator("#variants p").first.text_content()
    assert variant.startswith("The ") and variant.endswith(" sat")


def test_spelling_in_a_browser(page: Any) -> None:
    page.click("nav a[href='#spelling']")
    page.fill("#misspelled", "The caat sat on teh mat")
    run(page, "spelling")
    assert page.locator("#edits li").count() == 2 and "2 of 2" in page.inner_text("#tally")
    page.locator("#edits li").first.get_by_text("keep original").click()
    assert "1 of 2" in page.inner_text("#tally")
    reload(page)
    assert "1 of 2" in page.inner_text("#tally")
    page.click("#take")
    assert page.input_value("#misspelled") == "The caat sat on the mat"
    run(page, "spelling")
    page.get_by_text("always keep “caat”").click()
    run(page, "spelling")
    assert "Nothing to correct" in page.inner_text("#tally")


def test_the_schedule_in_a_browser(page: Any) -> None:
    page.click("nav a[href='#schedule']")
    page.wait_for_selector("#charts svg")
    assert page.locator("#charts figure").count() == 2 and page.locator("rect.bars").count() == 32
    page.select_option("#model", "genmd4")
    page.wait_for_selector("#charts figure:nth-of-type(3)")
    assert page.locator("#charts .token").count() == 27
    page.select_option("#model", "ar")
    page.get_by_text("no noise schedule").wait_for()


def test_noise_in_a_browser(page: Any) -> None:
    page.click("nav a[href='#noise']")
    page.fill("#clean", "the cat sat on the mat")  # the example is longer than this model's texts
    run(page, "noise")
    slider = "#form-back [name=moment]"
    page.fill(slider, "0")
    assert page.inner_text("#noised") == "the cat sat on the mat" and page.is_disabled("#form-back .run")
    page.fill(slider, "24")
    assert "t = 0.60" in page.inner_text("#how-noisy") and 0 < page.locator("#noised .mask").count() < 22
    run(page, "back")
    assert not page.locator("#returned .mask").count() and "to t = 0.00" in page.inner_text("#form-back .status")
    before = page.inner_text("#returned")
    reload(page)
    assert page.inner_text("#returned") == before
    page.select_option("#form-noise [name=noise]", "uniform")
    run(page, "noise")
    page.fill(slider, "40")
    assert page.locator("#noised .other").count() > 10 and page.is_hidden("#returned")
    assert "can denoise only its own noise" in page.inner_text("#no-way-back") and page.is_disabled("#form-back .run")
    choose_model(page, "ar")
    page.wait_for_selector("#form-back:not([hidden])")
    assert page.locator("#form-noise option").all_inner_texts()[0] == "uniform"
    assert "ar has no noise of this kind" in page.inner_text("#no-way-back")


def test_models_side_by_side_in_a_browser(page: Any) -> None:
    page.click("nav a[href='#models']")
    assert page.locator("#choose-models input").count() == 5 and page.locator("#choose-models input:checked").count() == 3
    page.check("#choose-models input[value=ar]")
    page.fill("#form-models [name=tokens]", "9")
    run(page, "models")
    assert page.locator("#written h3").all_inner_texts() == ["ar", "genmd4", "udlm", "mdlm"]
    texts = page.locator("#written p.text").all_text_contents()
    assert [len(text) for text in texts] == [9] * 4
    reload(page)
    assert page.is_visible("#view-models") and page.locator("#written p.text").all_text_contents() == texts
    assert page.input_value("#form-models [name=tokens]") == "9" and page.is_checked("#choose-models input[value=ar]")
    for name in ("ar", "genmd4", "udlm", "mdlm"):
        page.uncheck(f"#choose-models input[value={name}]")
    page.click("#form-models .run")
    assert "Choose at least one model." in page.inner_text("#error")


def test_samplers_side_by_side_in_a_browser(page: Any) -> None:
    page.click("nav a[href='#samplers']")
    page.fill("#form-samplers [name=steps]", "8")
    run(page, "samplers")
    assert page.locator(".result").count() == 3
    first = page.locator(".result").first.inner_text()
    assert "network calls" in first and "keeps the model's distribution" in first
    reload(page)
    assert page.is_visible("#view-samplers") and page.input_value("#form-samplers [name=steps]") == "8"
    assert page.locator(".result").first.inner_text() == first
    page.fill("#form-samplers [name=template]", "nothing is blank here")
    run(page, "samplers")
    assert "Nothing to fill in" in page.inner_text("#error")


def test_every_control_has_a_name_and_can_be_reached(address: str, browser: Any) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto(f"http://{address}/")
    page.wait_for_selector("body[data-ready]")
    nameless = page.evaluate(
        "[...document.querySelectorAll('input, select, textarea, button')].filter(one => !one.labels?.length"
        " && !one.textContent.trim() && !one.getAttribute('aria-label')).map(one => one.outerHTML)"
    )
    assert nameless == []
    reached = set()
    for _ in range(20):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("document.activeElement.name || document.activeElement.hash || document.activeElement.className")
        )
    assert {"#chain", "#samplers", "template", "steps", "seed", "run"} <= reached
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(23, 23, 21)"
    page.close()


# ---- a reload during work -------------------------------------------------------------------------------------------


def test_a_chain_goes_on_after_a_reload(slow_app: Any, slow_page: Any) -> None:
    page = slow_page
    page.fill("#form-chain [name=steps]", "1024")
    page.fill("#form-chain [name=seed]", "7")
    page.click("#form-chain .run")
    wait_for_frames(page, 20)
    before = page.evaluate("chain.frames[20].ids")
    page.fill("#form-chain [name=seed]", "8")  # of the next one
    reload(page)
    assert page.inner_text("#form-chain .run") == "Stop" and page.input_value("#form-chain [name=seed]") == "8"
    wait_for_frames(page, 20)
    assert page.evaluate("chain.frames[20].ids") == before and page.evaluate("chain.query.seed") == 7
    assert slow_app.state.jobs.under_way == 1  # the one of before has ended
    reload(page)
    wait_for_frames(page, 20)
    assert page.evaluate("chain.frames[20].ids") == before
    run(page, "chain")
    reload(page)
    assert page.inner_text("#form-chain .run") == "Generate" and page.inner_text("#form-chain .status") == "Stopped."
    soon_idle(slow_app)


def test_every_view_goes_on_after_a_reload(slow_app: Any, slow_page: Any) -> None:
    page = slow_page
    page.click("nav a[href='#samplers']")
    page.fill("#form-samplers [name=steps]", "1024")
    page.click("#form-samplers .run")
    page.wait_for_selector(".result .draft")
    page.click("nav a[href='#infill']")
    page.fill("#editor", "The ░░░ sat")
    page.fill("#form-infill [name=steps]", "1024")
    page.select_option("#form-infill [name=sampler]", "metropolis")
    page.click("#form-infill .run")
    page.wait_for_selector("#variants .draft")
    reload(page)
    page.wait_for_selector("#variants .draft")
    page.wait_for_selector(".result .draft", state="attached")
    run(page, "infill")
    page.click("nav a[href='#samplers']")
    run(page, "samplers")
    assert page.inner_text("#form-samplers .status") == "Stopped."
    reload(page)
    assert not page.locator("[aria-busy]").count()
    soon_idle(slow_app)


def test_another_tab_does_not_take_part(slow_app: Any, slow_address: str, browser: Any) -> None:
    context = browser.new_context()
    first, second = context.new_page(), context.new_page()
    first.goto(f"http://{slow_address}/")
    first.wait_for_selector("body[data-ready]")
    first.fill("#form-chain [name=steps]", "1024")
    first.click("#form-chain .run")
    first.wait_for_selector("#canvas:not([hidden])")
    second.goto(f"http://{slow_address}/")
    second.wait_for_selector("body[data-ready]")
    assert second.inner_text("#form-chain .run") == "Generate" and slow_app.state.jobs.under_way == 1
    context.close()
    soon_idle(slow_app)


# ---- another model --------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(folders: list[Path], tmp_path: Path) -> Iterator[str]:
    """Serve a studio with one folder that cannot be opened among others that can."""
    (tmp_path / "broken").mkdir()
    config = (folders[-1] / "config.json").read_text()
    (tmp_path / "broken" / "config.json").write_text(config)
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"nothing")
    with listening(make_app([folders[0], tmp_path / "broken", folders[-1]])) as address:
        yield address


def test_a_model_that_cannot_be_opened_writes_nothing(damaged: str, browser: Any) -> None:
    with opened(browser, f"http://{damaged}/") as page:
        page.fill("#form-chain [name=steps]", "6")
        run(page, "chain")
        text = page.text_content("#canvas")
        page.select_option("#model", "broken")
        page.wait_for_selector("#model-error:not([hidden])")
        assert "The model 'broken' cannot be opened" in page.inner_text("#model-error")
        for view in ("chain", "infill", "spelling", "schedule", "samplers"):
            page.click(f"nav a[href='#{view}']")
            assert page.is_disabled(f"#form-{view} .run") and page.is_visible("#model-error")
        assert page.evaluate("document.getElementById('main').inert")
        page.click("nav a[href='#chain']")
        assert page.is_hidden("#canvas") and page.is_hidden("#player") and not page.locator("#charts *").count()
        page.evaluate("document.getElementById('form-chain').requestSubmit()")
        assert not page.locator("[aria-busy]").count() and page.is_hidden("#canvas")
        choose_model(page, "ar")
        assert page.is_hidden("#model-error") and page.is_hidden("#canvas") and page.is_enabled("#form-chain .run")
        choose_model(page, "mdlm")
        assert page.text_content("#canvas") == text


def test_the_page_works_when_the_first_model_was_damaged(folders: list[Path], tmp_path: Path, browser: Any) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    with listening(make_app([folders[-1], tmp_path / "broken"])) as address, opened(browser, f"http://{address}/") as page:
        assert "cannot be opened" in page.inner_text("#model-error") and page.is_disabled("#form-chain .run")
        choose_model(page, "mdlm")
        page.fill("#form-chain [name=steps]", "6")
        run(page, "chain")
        page.click("#play")
        assert page.inner_text("#play") == "Pause"


def test_a_job_ends_when_another_model_is_chosen(slow_app: Any, slow_page: Any) -> None:
    page = slow_page
    page.fill("#form-chain [name=steps]", "1024")
    page.click("#form-chain .run")
    page.wait_for_selector("#canvas:not([hidden])")
    choose_model(page, "mdlm")
    page.wait_for_selector("#form-chain:not([aria-busy])")
    assert page.is_hidden("#canvas") and page.inner_text("#form-chain .status") == ""
    soon_idle(slow_app)
    choose_model(page, "slow")
    assert page.is_visible("#canvas") and page.inner_text("#form-chain .status") == "Stopped."


def test_the_inputs_follow_the_model(folders: list[Path], tmp_path: Path, browser: Any) -> None:
    unnoise.Model.build("mdlm", width=16, depth=1, heads=2, length=40).save(tmp_path / "longer")
    with listening(make_app([*folders, tmp_path / "longer"])) as address, opened(browser, f"http://{address}/") as page:
        length, template = "#form-chain [name=length]", "#form-chain [name=template]"
        assert page.input_value(length) == "40" and "[MASK]" in page.get_attribute(template, "placeholder")
        assert "Texts of 40 tokens" in page.inner_text("#about")
        choose_model(page, "flexmdm")
        assert page.input_value(length) == "24" and "[GAP]" in page.get_attribute(template, "placeholder")
        assert "at most 24 tokens" in page.inner_text("#about")
        choose_model(page, "longer")
        assert page.input_value(length) == "40" and page.input_value("#form-samplers [name=length]") == "40"
        page.fill(length, "11")
        choose_model(page, "mdlm")
        assert page.input_value(length) == "11" and page.input_value("#form-samplers [name=length]") == "24"
        reload(page)
        assert page.input_value(length) == "11" and page.input_value("#form-samplers [name=length]") == "24"


# ---- small things ---------------------------------------------------------------------------------------------------


def test_a_die_for_the_seed(page: Any) -> None:
    seeds = set()
    for _ in range(4):
        page.click("#form-chain .dice")
        seeds.add(page.input_value("#form-chain [name=seed]"))
    assert len(seeds) > 1
    reload(page)
    assert page.input_value("#form-chain [name=seed]") in seeds


def test_why_spelling_cannot_be_checked_is_said(page: Any) -> None:
    page.click("nav a[href='#spelling']")
    assert page.is_hidden("#no-spelling") and page.is_enabled("#form-spelling .run")
    choose_model(page, "ar")
    assert page.is_disabled("#form-spelling .run")
    assert page.is_visible("#no-spelling") and "cannot check spelling" in page.inner_text("#no-spelling")


def test_the_page_with_a_token(folders: list[Path], browser: Any) -> None:
    with listening(make_app(folders[-1:], token="the-token")) as address:
        with opened(browser, f"http://{address}/?token=the-token#samplers") as page:
            assert page.url == f"http://{address}/#samplers"  # not left in the history
            page.fill("#form-samplers [name=steps]", "4")
            run(page, "samplers")
            reload(page)
            assert page.locator(".result").count() == 3
        stranger = browser.new_page()
        assert stranger.goto(f"http://{address}/").status == 401 and "needs its token" in stranger.content()
        stranger.close()


class Breakable(TimedProtocol):
    """Connections that can be cut from outside."""

    made: ClassVar[list[TimedProtocol]] = []

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.made.append(self)


def test_a_lost_connection_is_noticed(folders: list[Path], browser: Any) -> None:
    with listening(make_app(folders[-1:]), Breakable) as address, opened(browser, f"http://{address}/") as page:
        page.fill("#form-chain [name=steps]", "1024")
        page.select_option("#form-chain [name=sampler]", "metropolis")
        page.click("#form-chain .run")
        wait_for_frames(page, 3)
        for connection in Breakable.made:
            connection.loop.call_soon_threadsafe(connection.transport.abort)
        page.wait_for_selector("#error:not([hidden])")
        assert page.inner_text("#error") == "The connection to the studio was lost; start again."
        assert page.inner_text("#form-chain .run") == "Generate" and page.is_visible("#canvas")


def test_the_forms_begin_with_what_the_model_recommends(folders: list[Path], browser: Any, tmp_path: Path) -> None:
    """Values changed by hand stay when another model is chosen; recommended values do not."""
    model = unnoise.load(folders[-1])
    model.sampling = {"sampler": "confidence", "steps": 12, "temperature": 0.9, "top_p": 0.93}
    model.save(tmp_path / "advised")
    with (
        listening(make_app([folders[-1], tmp_path / "advised"])) as address,
        opened(browser, f"http://{address}/#chain") as page,
    ):

        def shown() -> list[str]:
            return [page.input_value(f"#form-chain [name={name}]") for name in ("steps", "temperature", "top_p", "sampler")]

        assert shown() == ["12", "0.9", "0.93", ""]
        assert "It recommends sampler confidence, steps 12, temperature 0.9, top-p 0.93." in page.inner_text("#about")
        assert page.inner_text("#form-chain [name=sampler] option >> nth=0") == "own (confidence)"
        page.click("#form-chain .run")
        page.wait_for_selector("#form-chain:not([aria-busy])")
        page.wait_for_selector("#canvas:not([hidden])")
        page.fill("#form-chain [name=temperature]", "0.5")
        page.select_option("#model", "mdlm")
        page.wait_for_selector("body[data-model=mdlm]")
        assert shown() == ["64", "0.5", "1", ""]
        assert page.input_value("#form-schedule [name=steps]") == "32"
