"""Models that know a toy: the network is the toy's own conditional, so that every figure can be had by enumeration."""

import torch
from torch import Tensor, nn

import unnoise
from toy import Toy
from unnoise.data import Characters

LETTERS = "abcdefgh"


class ToyNetwork(nn.Module):
    """log p(x^i | the tokens that are not masked), as logits [B, L, K]; the mask is K. blur mixes in the uniform."""

    def __init__(self, toy: Toy, blur: float = 0.0, inputs: int = 0):
        super().__init__()
        self.toy, self.blur = toy, blur
        self.config = {"inputs": inputs or toy.vocab + 1, "outputs": toy.vocab}
        self.anchor = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, t: Tensor | None = None, where: Tensor | None = None) -> Tensor:
        toy, length = self.toy, x.shape[1]
        assert length <= toy.length
        fits = ((toy.x[None, :, :length] == x[:, None]) | (x[:, None] == toy.vocab)).all(-1).double() * toy.p  # [B, N]
        rows = torch.stack([toy.marginals(fits, i) for i in range(length)], 1)
        mean = rows / rows.sum(-1, keepdim=True)
        mean = (1 - self.blur) * mean + self.blur / toy.vocab
        return (mean.clamp_min(1e-300).log() + self.anchor).to(torch.float64)


def toy_model(toy: Toy, method: str = "mdlm", blur: float = 0.0) -> unnoise.Model:
    """Return a model of texts of the toy's length, with letter k for token k."""
    return unnoise.Model.build(method, Characters(LETTERS[: toy.vocab]), length=toy.length, network=ToyNetwork(toy, blur))


def text_of(tokens: Tensor) -> str:
    return "".join(LETTERS[token] for token in tokens.tolist())
