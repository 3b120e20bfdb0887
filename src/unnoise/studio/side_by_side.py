"""The view of models: texts by several models with the same seed and their recommended options."""

from unnoise.data import Pixels
from unnoise.studio.chain import ChainRun
from unnoise.studio.jobs import Steps
from unnoise.studio.models import Models
from unnoise.studio.options import open_named
from unnoise.studio.request import MOST_SEED, BadRequest, RequestFields

MOST_MODELS = 12
LONGEST = 4096  # tokens; the length of a model is a further limit


def side_by_side(models: Models, fields: RequestFields) -> Steps:
    """Yield the states of a text by each of the named models, one model after another, then its text and cost."""
    names = list(dict.fromkeys(fields.texts("models", MOST_MODELS)))
    length = fields.whole("length", 1, LONGEST) if fields.given("length") else LONGEST
    seed = fields.whole("seed", 0, MOST_SEED, default=0)
    fields.ignore("model")  # the selected model of the page
    fields.done()
    if not names:
        raise BadRequest(f"The field 'models' must name at least one of: {', '.join(models.text_names)}.", param="models")
    opened = [open_named(models, name) for name in names]
    for one in opened:
        if isinstance(one.model.codec, Pixels):
            raise BadRequest(f"{one.name} is a model of images: choose models of text.", param="models")
    for one in opened:
        run = ChainRun(one.model, "", min(length, one.model.length), {"seed": seed})
        for step in run:
            yield {"name": one.name, "draft": step.text}
        yield {"name": one.name, "text": run.text(), "method": one.model.method.name, **run.cost.message()}
