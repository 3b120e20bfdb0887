"""The object people use: codec, network and method in one, with the verbs they want."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from unnoise.checkpoint.published.hub import Upload
from unnoise.data import Codec, Pixels
from unnoise.data.texts import SequenceData
from unnoise.model import denoise, generate, io, likelihood, push
from unnoise.model.denoise import Denoised
from unnoise.model.generate import OnStep, Step
from unnoise.model.likelihood import Score
from unnoise.model.parts import ModelParts
from unnoise.model.push import Pushed
from unnoise.model.template import GAP, MASK, Template, given_sides
from unnoise.process.state import OPEN_GAP


class Model(ModelParts):
    """A method with its network and codec, and what it can do. Its parts are those of `ModelParts`."""

    def save(self, path: str | Path, dtype: str | None = None) -> None:
        """Write the folder `path`: config.json, model.safetensors and codec files, each whole or not at all.

        dtype: of the weights in the file, float32, float16, bfloat16 or int8; as they are by default.
        """
        io.save(self, Path(path), dtype=dtype)

    @staticmethod
    def load(
        path: str | Path, mask_token: int | None = None, method: str | None = None, codec: str | Path | Codec | None = None
    ) -> "Model":
        """A saved model from its folder, or a bundled one by its name, or a published one; see `unnoise.load`."""
        return io.load(path, mask_token, method, codec)

    def push(
        self,
        repo_id: str,
        to: str | None = None,
        private: bool = False,
        message: str | None = None,
        license: str | None = None,
    ) -> Pushed:
        """Upload to the Hugging Face hub as owner/name (the extra `hub`), with a README.md from the card; `load` reads it back.

        to: a published layout (mdlm, sedd, bd3lm, udlm, duo, gidd, flexmdm), or None for our own format. private: a repository
        that only its owner sees. message: of the commit. license: of the model, by its name on the hub. ValueError before
        anything is uploaded, where that cannot be done.
        """
        return push.push(self, Upload.begin(repo_id), to, private, message, license)

    def config(self) -> dict[str, Any]:
        """What config.json holds."""
        return io.config_of(self)

    # ---- writing -----------------------------------------------------------------------------------------------------

    def generate(self, n: int = 1, length: int | None = None, on_step: OnStep | None = None, **options: Any) -> list[str]:
        """n new texts of `length` tokens (at most, where the model chooses the length); for the rest see `SamplingOptions`.

        on_step gets every state of the first text, as `chain` yields them.
        """
        return generate.write(self, self.template(None, length), n, length, self.sampling_options(options), on_step)

    def chain(self, length: int | None = None, template: str | None = None, row: int = 0, **options: Any) -> Iterator[Step]:
        """A text as it emerges, state by state; with `template`, the infilling of that. row: which of those that `generate`
        (or `infill`) writes with the same options."""
        before, rows = None, range(row, row + 1)
        for frame in generate.frames(self, self.template(template, length), rows, length, self.sampling_options(options)):
            yield generate.shown_step(self, frame, before)
            before = frame

    def stream(self, prefix: str = "", length: int | None = None, row: int = 0, **options: Any) -> Iterator[str]:
        """A text that begins as given, piece by piece: token by token for ar, block by block for bd3lm, all at once for methods
        that write everywhere at a time. row: which of those that `complete` writes with the same options."""
        template = self.completion(prefix, "", length)
        return generate.stream(self, template, row, length or self.length, self.sampling_options(options))

    def infill(self, text: str, n: int = 1, length: int | None = None, **options: Any) -> list[str]:
        """Return n variants of a text with each [MASK] replaced by one token and each [GAP] by any number of tokens.

        The rest comes back unchanged. [GAP] is for methods of variable length; `length` then limits the whole.
        """
        return generate.write(self, self.template(text), n, length, self.sampling_options(options))

    def complete(
        self,
        prefix: str = "",
        suffix: str = "",
        length: int | None = None,
        n: int = 1,
        **options: Any,
    ) -> list[str]:
        """n texts of `length` tokens (at most, where the model chooses the length) that begin and end as given."""
        template = self.completion(prefix, suffix, length)
        return generate.write(self, template, n, length or self.length, self.sampling_options(options))

    def draw(
        self,
        n: int = 1,
        given: np.ndarray | None = None,
        known: np.ndarray | None = None,
        on_step: OnStep | None = None,
        **options: Any,
    ) -> np.ndarray:
        """n images [n, H, W(, C)] uint8. given: an image of which the pixels `known` (bool, the same shape) are kept.

        on_step gets every state of the first image.
        """
        if not isinstance(self.codec, Pixels):
            raise ValueError("this is a model of text: use generate")
        tokens = np.full(self.length, -1) if given is None else self.codec.encode_image(given)
        if known is not None:
            tokens = np.where(known.reshape(-1), tokens, -1)
        template = Template([], [], tokens.tolist())
        images = generate.paint(self, self.codec, template, n, self.sampling_options(options), on_step)
        return np.stack(images)

    def template(self, text: str | None = None, length: int | None = None) -> Template:
        """What is to be written: a text with [MASK]s and [GAP]s, or nothing given but a length."""
        if text is None:
            length = self.length if length is None else length
            self._check_length(length)
            return Template.between("", self.process.blank(1, length)[0].tolist(), "", self.codec)
        if GAP in text and not self.process.variable_length:
            raise ValueError(
                f"{GAP} stands for any number of tokens, which {self.method.name} cannot choose: use {MASK} for each token, "
                "or a model of variable length (flexmdm)"
            )
        template = Template.parse(text, self.codec)
        tokens = sum(token != OPEN_GAP for token in template.given)
        if tokens > self.length:
            raise ValueError(f"this model reads texts of at most {self.length} tokens, found {tokens}")
        return template

    def completion(self, prefix: str = "", suffix: str = "", length: int | None = None) -> Template:
        """What `complete` fills in."""
        longest = self.length if length is None else length
        given = sum(map(len, given_sides(prefix, suffix, self.codec)))
        if longest <= given:
            raise ValueError(f"prefix and suffix have {given} tokens: nothing is left to write in a length of {longest}")
        self._check_length(longest)
        blanks = self.process.blank(1, longest - given)[0].tolist()
        return Template.between(prefix, blanks, suffix, self.codec)

    def _check_length(self, length: int) -> None:
        if not 1 <= length <= self.length:
            raise ValueError(f"this model writes texts of 1 to {self.length} tokens, found a length of {length}")

    def fills_exactly(self, template: Template) -> bool:
        """Whether filling this in draws from the model's own conditional (with enough steps), and is not a heuristic."""
        return generate.fills_exactly(self, template)

    # ---- measuring ------------------------------------------------------------------------------------------------------

    def candidates(self, ids: Sequence[int], place: int, t: float, most: int = 8) -> list[tuple[str, float]]:
        """What could stand at one position of a text on its way (`Step.ids`) at time t, with probabilities, likeliest first."""
        return generate.candidates(self, list(ids), place, t, most)

    def denoise(
        self,
        text: str,
        at: float = denoise.LEVEL,
        n: int = 0,
        steps: int | None = None,
        seed: int = 0,
        label: int | str | None = None,
        guidance_scale: float = 1.0,
        on_progress: denoise.OnProgress | None = None,
    ) -> list[Denoised]:
        """Take the text as x_t, noised up to t = `at`, and return x_0: the most probable token at each position, or n samples.

        With n = 0 the result is one text, each token the mode of p(x_0^i | x_t). Samples come from p(x_0 | x_t) by the method's
        own sampler, from t to 0. Masked noise changes no token into another, so for a masked model `at` is the share of tokens
        that random errors have replaced, and samples come from Gibbs sampling (see `unnoise.sampler.metropolis`).

        steps: steps of the sampler (128), or sweeps of Gibbs sampling (4). on_progress: called with the share that is done.
        """
        return denoise.denoise(
            self,
            text,
            at,
            n=n,
            steps=steps,
            seed=seed,
            label=label,
            guidance_scale=guidance_scale,
            on_progress=on_progress,
        )

    def score(
        self,
        text: str | Sequence[str],
        samples: int | None = None,
        seed: int = 0,
        error: float = likelihood.SCORE_ERROR,
        orders: int | None = None,
    ) -> Score:
        """−log p of a text, or of several together; a longer text than the model's is scored in windows.

        samples: draws of the bound, at most; 32, or 2 with orders. A standard error takes 16 of a single text.
        error: standard error to aim for, in bits per character; a pilot of a few draws tells how many it takes. 0 takes all of
            `samples`.
        orders: M of the importance-weighted bound, for masked models that do not read the time: tighter as M grows, at as many
            network calls for each of them as there are tokens.
        """
        return likelihood.score(self, [text] if isinstance(text, str) else list(text), samples, seed, error, orders)

    def nats(self, x: Tensor, draws: int = 1, seed: int = 0) -> Tensor:
        """Draws of the bound for each sequence: x [B, L] → [draws, B] float64."""
        return likelihood.nats(self, x, draws, seed)

    def bits_per_char(
        self, texts: SequenceData, windows: int | None, draws: int, seed: int = 0, error: float = 0.0
    ) -> likelihood.BitsPerChar:
        """Bits per character (or dimension) over at most so many of the texts, with its standard errors."""
        return likelihood.bits_per_char(self, texts, windows, draws, seed, error)
