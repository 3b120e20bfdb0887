"""Gaussian noise on learned embeddings: z_t = √ā z_0 + √(1−ā) ε with z_0 = E[x_0] (DDPM for text; Plaid, arXiv:2305.18619).

SNR = ā/(1−ā) = e^{−γ(t)}, γ rising in a straight line from γ_0 to γ_1; the two ends can be learned, and the bound stays one.
The rows of E are normalised to length √D, so that each coordinate of z_0 has unit size. The state belongs to this file: nothing
outside indexes it.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from unnoise.process.canvas import Canvas


class Gaussian(Canvas):
    """Noise on embeddings of `width` D numbers a token. Times t: [B]; states z: [B, L, D].

    self_condition: the network also reads its last estimate of z_0 (arXiv:2208.04202), so it reads 2·D numbers.
    """

    def __init__(
        self,
        vocab: int,
        width: int = 16,
        gamma: tuple[float, float] = (-4.0, 6.0),
        learned: bool = False,
        self_condition: bool = False,
    ):
        super().__init__(vocab)
        if width < 1:
            raise ValueError(f"Gaussian needs embeddings of at least one number, found width = {width}")
        if not gamma[0] < gamma[1]:
            raise ValueError(f"Gaussian needs gamma to rise from noise-free to noise, found {gamma}")
        self.width, self.self_condition = width, self_condition
        generator = torch.Generator().manual_seed(0)
        self.embedding = nn.Parameter(torch.randn(vocab, width, generator=generator))
        ends = torch.tensor([gamma[0], torch.tensor(gamma[1] - gamma[0]).expm1().log().item()])
        self.ends = nn.Parameter(ends, requires_grad=learned)

    @property
    def inputs(self) -> int:
        return 2 * self.width if self.self_condition else self.width

    def curves(self) -> dict[str, Callable[[Tensor], Tensor]]:
        return {"ā, the signal left": self.signal}

    def table(self) -> Tensor:
        """E, its rows of length √D: [K, D]."""
        return nn.functional.normalize(self.embedding, dim=-1) * self.width**0.5

    def gamma(self, t: Tensor) -> Tensor:
        """γ(t) = γ_0 + (γ_1 − γ_0)·t, −log SNR: [B] → [B]."""
        return self.ends[0].to(t.dtype) + self.slope().to(t.dtype) * t

    def slope(self) -> Tensor:
        """γ′ = γ_1 − γ_0 > 0: scalar."""
        return nn.functional.softplus(self.ends[1])

    def signal(self, t: Tensor) -> Tensor:
        """ā(t) = sigmoid(−γ): [B] → [B]."""
        return torch.sigmoid(-self.gamma(t))

    def noise(self, t: Tensor) -> Tensor:
        """1 − ā(t) = sigmoid(γ): [B] → [B]."""
        return torch.sigmoid(self.gamma(t))

    def diffuse(self, z_0: Tensor, t: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """z_t ~ N(√ā z_0, (1−ā) I): [B, L, D], [B] → [B, L, D]."""
        noise = torch.randn(z_0.shape, generator=generator, device=z_0.device, dtype=z_0.dtype)
        signal, spread = (_rows(value, z_0).sqrt() for value in (self.signal(t), self.noise(t)))
        return signal * z_0 + spread * noise

    def observe(self, z: Tensor, guess: Tensor | None) -> Tensor:
        """What the network reads: z, and the last estimate of z_0 if it is self-conditioned: [B, L, inputs]."""
        if not self.self_condition:
            return z
        return torch.cat([z, torch.zeros_like(z) if guess is None else guess], -1)

    def posterior(self, z: Tensor, z_0: Tensor, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [B, L, D] and variance [B, 1, 1] of q(z_s | z_t, z_0), s < t.

        Mean [√ā_s(1−a) z_0 + √a(1−ā_s) z_t]/(1−ā_t), variance (1−a)(1−ā_s)/(1−ā_t), a = ā_t/ā_s.
        """
        signal_s, signal_t = _rows(self.signal(s), z), _rows(self.signal(t), z)
        noise_s, noise_t = _rows(self.noise(s), z), _rows(self.noise(t), z)
        a = signal_t / signal_s
        lost = (noise_t - noise_s) / signal_s  # 1 − a without cancellation
        mean = (signal_s.sqrt() * lost * z_0 + a.sqrt() * noise_s * z) / noise_t
        return mean, lost * noise_s / noise_t

    def likelihood(self, z: Tensor, t: Tensor) -> Tensor:
        """log q(z_t | x_0 = k) for every token, up to a constant: [B, L, D] → [B, L, K]."""
        signal, noise = _rows(self.signal(t), z), _rows(self.noise(t), z)
        table = self.table().to(z.dtype)
        return (signal.sqrt() * (z @ table.T) - 0.5 * signal * table.square().sum(-1)) / noise

    def noise_kl(self, x: Tensor) -> Tensor:
        """KL(q(z_1|x_0) ‖ N(0, I)) = ½ Σ_d [ ā z_0² − ā − log(1−ā) ] at t = 1: [B, L]."""
        one = torch.ones(1, device=x.device, dtype=self.embedding.dtype)
        signal, noise = self.signal(one), self.noise(one)
        z_0 = self.table()[x]
        return 0.5 * (signal * z_0.square() - signal - noise.log()).sum(-1)


def _rows(values: Tensor, like: Tensor) -> Tensor:
    """[B] → [B, 1, 1] in the dtype of `like`."""
    return values[:, None, None].to(like.dtype)
