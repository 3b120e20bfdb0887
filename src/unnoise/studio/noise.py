"""The view of noise: a text along one path of noise, and the model's denoising from one of its times."""

from unnoise.model.model import Model
from unnoise.model.noise import NOISES, NoisedText, NoisePath, model_path, noise_named, way_back
from unnoise.model.options import SamplingOptions
from unnoise.studio.jobs import Message, Steps
from unnoise.studio.models import Models
from unnoise.studio.options import requested_text_model
from unnoise.studio.request import MOST_SEED, MOST_STEPS, BadRequest, RequestFields

INTERVALS = 40  # of a path


def noise(models: Models, fields: RequestFields) -> Steps:
    """Yield a text at the times 0, 1/40, …, 1 along one path of noise; an empty name is the model's own process."""
    model = requested_text_model(models, fields)
    path = _requested_path(model, fields, fields.choice("noise", ["", *NOISES], ""))
    fields.done()
    shown: dict[int, str] = {}
    yield {"states": [_state(one, shown) for one in path.texts()], "shown": shown}


def back(models: Models, fields: RequestFields) -> Steps:
    """Yield the states of denoising from one of these times, by its index, with the model's own process."""
    model = requested_text_model(models, fields)
    moment = fields.whole("moment", 1, INTERVALS)
    steps = fields.whole("steps", 1, MOST_STEPS, default=128)
    path = _requested_path(model, fields, "")
    fields.done()
    for noised in way_back(model, path, SamplingOptions(steps=steps, seed=path.seed), moment):
        shown: dict[int, str] = {}
        yield _state(noised, shown) | {"shown": shown}


def _requested_path(model: Model, fields: RequestFields, name: str) -> NoisePath:
    text = fields.text("text")
    seed = fields.whole("seed", 0, MOST_SEED, default=0)
    times = [i / INTERVALS for i in range(INTERVALS + 1)]
    if not name:
        return model_path(model, text, times, seed)
    tokens = model.codec.encode(text).tolist()
    if len(tokens) > model.length:
        raise BadRequest(
            f"The text may have {model.length} tokens, the length of the model, found {len(tokens)}.", param="text"
        )
    return NoisePath(noise_named(name, model.codec), model.codec, tokens, times, seed)


def _state(noised: NoisedText, shown: dict[int, str]) -> Message:
    """Return a text as a message for the page and add the texts of its tokens to `shown`."""
    shown.update(zip(noised.ids, noised.tokens, strict=True))
    return {"t": round(noised.t, 4), "ids": noised.ids}
