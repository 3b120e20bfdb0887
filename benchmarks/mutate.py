"""Mutation test of the formulas: break one at a time in a copy of the package, and see whether the tests notice.

    python benchmarks/mutate.py              # all, about ten minutes on one core
    python benchmarks/mutate.py gaussian     # those whose name contains a word

Each line says which formula was broken, how, and whether a test failed ("found") or none did ("SURVIVED": a test is missing).
The exit code is the number of survivors.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Mutation:
    """`right` stands once in `file` and becomes `wrong`; `tests` are the files that should notice."""

    name: str
    file: str
    right: str
    wrong: str
    tests: str


# name | file | tests, then what stands in the file (-) and what it becomes (+)
TABLE = """
Offset's slope | schedule.py | test_schedule
- return (1 - 2 * self.eps) * self.schedule.alpha_prime(t)
+ return self.schedule.alpha_prime(t)
CosineTable's noise | schedule.py | test_schedule
- torch.sin(half) / math.cos(self.start)
+ torch.sin(half)
Geometric's inverse | schedule.py | test_schedule
- torch.log(-torch.log(alpha) / self.lo)
+ torch.log(-torch.log(alpha))
Table's inverse | schedule.py | test_schedule
- ((cell + inside) / (len(self.sigmas) - 1))
+ (cell / (len(self.sigmas) - 1))
GenMD4's integrand | process/masked.py | test_closed_forms test_exactness
- own * (1 + log_mu)
+ own * log_mu
SEDD's constant | process/masked.py | test_closed_forms test_exactness
- rho * (rho.log() - 1 - gather(log_s, x))
+ rho * (rho.log() - gather(log_s, x))
GenMD4's step KL | process/masked.py | test_closed_forms
- nats = nats + (1 - own) * odds.log()
+ nats = nats + odds.log()
SEDD's − log K | process/masked.py | test_closed_forms
- raw - math.log(self.vocab)
+ raw
GenMD4's reconstruction | process/masked.py | test_closed_forms test_objectives
- torch.log_softmax(noise.log(), -1)
+ torch.log_softmax(noise, -1)
a mask's chance to be revealed | process/masked.py | test_closed_forms
- return 1 - self._noise(s) / self._noise(t)
+ return self._alpha(s) - self._alpha(t)
in which step a mask is revealed | process/masked.py | test_samplers
- (noise / noise[0]).flip(0)
+ noise.square().flip(0)
the uniform integrand's correction | process/uniform.py | test_closed_forms
- excess = torch.expm1(-log_rho)
+ excess = torch.exp(-log_rho)
the uniform reverse step | process/uniform.py | test_closed_forms
- _column((noise / self.vocab).log(), log_w)
+ _column(noise.log(), log_w)
masks over a Markov chain | process/masked_markov.py | test_closed_forms test_exactness
- return torch.cat([tokens, ratios[..., -1:] - (1 - kept) * tokens
+ return torch.cat([tokens, ratios[..., -1:] - kept * tokens
mutual information | process/markov.py | test_schedule test_properties test_closed_forms
- torch.xlogy(joint, p[:, None] * joint.sum(0))
+ torch.xlogy(joint, p[:, None] * p)
the hybrid's weight | objective/elbo.py | test_objectives
- - self.weight * gather
+ - self.weight / (self.steps or 1) * gather
the residual signal, weighted back | objective/elbo.py | test_exactness test_objectives
- self.masked_reconstruction(denoiser, x) / share
+ self.masked_reconstruction(denoiser, x)
leave-one-out | objective/leave_one_out.py | test_objectives
- 0.5 * (f_1 - f_2).detach() * log_q
+ (f_1 - f_2).detach() * log_q
Campbell's constant | objective/campbell.py | test_campbell
- torch.xlogy(q, q) - q
+ torch.xlogy(q, q) + q
log-uniform times | objective/times.py | test_times
- t * math.log(1 / start) / (1 - start)
+ t * math.log(1 / start)
loss-aware times | objective/times.py | test_times
- p = self.squares.sqrt()
+ p = self.squares
concrete score | objective/score.py | test_objectives
- 0.5 * (log_s.exp() - r) ** 2
+ 0.5 * (log_s - r.log()) ** 2
gaussian bound | families/gaussian.py | test_continuous
- (1.0 if self.simple else 0.5 * slope)
+ (1.0 if self.simple else slope)
gaussian prior | families/gaussian.py | test_continuous
- signal * z_0.square() - signal - noise.log()
+ signal * z_0.square() - signal
gaussian posterior | families/gaussian.py | test_continuous
- return mean, lost * noise_s / noise_t
+ return mean, lost * noise_s
block weight | families/block/objective.py | test_block
- weight = torch.where(hidden, 1 / share.clamp_min(1e-9), 0)
+ weight = torch.where(hidden, torch.ones_like(share), 0)
blocks see later blocks | network/visibility.py | test_block
- noised = torch.cat([query == key, query > key], 1)
+ noised = torch.cat([query == key, query >= key], 1)
block convolution without the past | network/transformer.py | test_block
- past = F.pad(halves[:, 1], (0, 0, before, 0)).unfold(1, before, block)[:, : blocks.shape[2]]
+ past = F.pad(halves[:, 0], (0, 0, before, 0)).unfold(1, before, block)[:, : blocks.shape[2]]
block sampler keeps the noised block | families/block/sampler.py | test_block
- self.network.read(self.x[self.alive, here], self.cache)
+ self.network.read(torch.full_like(self.x[self.alive, here], self.denoiser.process.vocab), self.cache)
gaussian shape by its variance | families/noise_shape.py | test_continuous
- 2 * nats.detach().double() / scale
+ 2 * torch.ones_like(nats).double() / scale
flow bound | families/bayesian_flow.py | test_continuous
- self.process.vocab * self.process.accuracy * u)
+ self.process.vocab * self.process.accuracy * u.square())
flow messages | families/bayesian_flow.py | test_continuous
- dtype=torch.float64).square()
+ dtype=torch.float64)
flow update | families/bayesian_flow.py | test_continuous
- + alpha * target + (alpha * self.vocab).sqrt()
+ + alpha * target + alpha.sqrt()
insertion: cost of a gap | families/insertion/objective.py | test_insertion
- return expected - count - torch
+ return expected - torch
insertion: unmasked after it is there | families/insertion/process.py | test_insertion
- second * (1 - then) <
+ second <
insertion: the sampler's hazards | families/insertion/sampler.py | test_insertion
- 1 - stay[process.insertion], gaps
+ 1 - stay[process.unmasking], gaps
any order | families/any_order.py | test_any_order
- x.shape[1] / count.to(nats.dtype)
+ (x.shape[1] + 1) / (count.to(nats.dtype) + 1)
remasking | sampler/remasking.py | test_quality_samplers
- (alpha_s - (1 - remask) * alpha_t)
+ (alpha_s - alpha_t)
first hitting | sampler/first_hitting.py | test_samplers
- ** (1 / left.clamp_min(1))
+
psi | sampler/psi.py | test_samplers test_quality_samplers
- process.push(clean, s)
+ process.push(clean, t)
Euler leap | sampler/tau_leaping.py | test_samplers
- (1 - total).clamp_min(0)
+ torch.exp(-total)
predictor-corrector | sampler/predictor_corrector.py | test_quality_samplers
- process.noised(x, from_s, to_t, generator)
+ process.noised(x, None, to_t, generator)
Metropolis | sampler/metropolis.py | test_metropolis
- .log() < log_ratio
+ .log() < 0.5 * log_ratio
guidance | network/parameterization.py | test_images test_model test_network
- unconditional + self.guidance * (found - unconditional)
+ found + self.guidance * (found - unconditional)
warm-up of the EMA | training/average.py | test_trainer
- min(decay, (1 + steps) / (10 + steps))
+ decay
the error bar | model/likelihood.py | test_likelihood
- (sums.var(0).sum() / len(sets)).sqrt()
+ sums.var(0).sum().sqrt()
Muon's scale of tall matrices | training/optimizer.py | test_network test_trainer
- max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
+ max(1.0, weight.shape[0] / weight.shape[1])
"""
ENTRY = re.compile(r"(.+) \| (.+) \| (.+)\n- (.+)\n\+ ?(.*)")
MUTATIONS = [Mutation(name, file, right, wrong, tests) for name, file, tests, right, wrong in ENTRY.findall(TABLE)]


def survives(mutation: Mutation, source: Path) -> bool:
    """Whether no test fails with this formula broken in the copy of the package at `source`."""
    path = source / "unnoise" / mutation.file
    content = path.read_text(encoding="utf-8")
    if content.count(mutation.right) != 1:
        raise SystemExit(f"{mutation.name}: {mutation.right!r} stands {content.count(mutation.right)} times in {mutation.file}")
    path.write_text(content.replace(mutation.right, mutation.wrong), encoding="utf-8")
    tests = [str(ROOT / "tests" / f"{name}.py") for name in mutation.tests.split()]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", *tests],
            env=os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        path.write_text(content, encoding="utf-8")
    if done.returncode not in (0, 1):
        raise SystemExit(f"{mutation.name}: the tests could not be run\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 0


def main(words: list[str]) -> int:
    """Run those whose name contains a word, or all."""
    chosen = [one for one in MUTATIONS if not words or any(word.lower() in one.name.lower() for word in words)]
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src" / "unnoise", Path(folder) / "unnoise", ignore=shutil.ignore_patterns("__pycache__"))
        for one in chosen:
            start = time.monotonic()
            lived = survives(one, Path(folder))
            survivors += lived
            words_for = "SURVIVED" if lived else "found"
            print(
                f"{words_for:9s} {time.monotonic() - start:5.0f} s  {one.name}: {one.right}  →  {one.wrong or 'nothing'}",
                flush=True,
            )
    print(f"{len(chosen) - survivors} of {len(chosen)} wrong formulas were found")
    return survivors


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
