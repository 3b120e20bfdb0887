"""Whether a model draws the digit that it is asked for: a classifier that has seen the real digits says what it sees.

    python benchmarks/digits.py --model runs/digits --guidance-scale 1 2 4

The classifier is scikit-learn's support vector machine, trained on the training digits; its share of right answers on the
held-out ones is beside the drawn ones. Both kinds are of 17 levels.
"""

import argparse

import numpy as np
from sklearn.svm import SVC

import unnoise
from unnoise.data.documents import digits


def flat(pictures: np.ndarray) -> np.ndarray:
    return pictures.reshape(len(pictures), -1) / 255


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="runs/digits")
    parser.add_argument("--each", type=int, default=50, help="images of each class")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--sampler")
    parser.add_argument("--guidance-scale", type=float, nargs="+", default=[1.0, 2.0])
    options = parser.parse_args()
    model, real = unnoise.load(options.model), digits()
    classifier = SVC(gamma="scale", C=10).fit(flat(real.pictures["train"]), real.labels["train"])
    seen = classifier.predict(flat(real.pictures["test"])) == real.labels["test"]
    print(f"held-out digits: {seen.mean():.3f} of {len(seen)} recognized")
    for guidance in options.guidance_scale:
        right = []
        for label in range(10):
            drawn = model.draw(
                options.each, steps=options.steps, sampler=options.sampler, label=label, guidance_scale=guidance, seed=label
            )
            right.append(float((classifier.predict(flat(drawn)) == label).mean()))
        each = " ".join(f"{share:.2f}" for share in right)
        print(
            f"drawn, guidance {guidance:g}: {np.mean(right):.3f} of {10 * options.each} recognized; by class {each}", flush=True
        )
