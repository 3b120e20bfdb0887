"""Writes the card of a trained model into its folder: measures held-out bits, and writes six samples as they came.

    python benchmarks/card.py runs/mdlm30 --name wiki --data path/to/text8 --about "English without capitals" \\
        --from "the first 20 M characters of text8 (Wikipedia, 2006)" --license "CC BY-SA" \\
        --command "unnoise train mdlm --data path/to/text8 --minutes 30"
"""

import argparse
from pathlib import Path

import unnoise
from unnoise.checkpoint.format import CARD
from unnoise.evaluation.dataset import CardFacts, model_card
from unnoise.files import write_atomically

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--name", required=True, help="how the model is called")
    parser.add_argument("--about", required=True, help="one line: what it is")
    parser.add_argument("--data", required=True, help="what is held out, as for unnoise eval")
    parser.add_argument("--split", default="test")
    parser.add_argument("--windows", type=int, default=500)
    parser.add_argument("--from", dest="trained_on", required=True, help="the data in words")
    parser.add_argument("--license", required=True, help="of the data")
    parser.add_argument("--command", action="append", default=[], help="which made the model; several in their order")
    options = parser.parse_args()
    facts = CardFacts(options.name, options.about, options.trained_on, options.license, options.command)
    model = unnoise.load(options.folder)
    card = model_card(model, facts, unnoise.corpus(options.data), options.split, options.windows)
    write_atomically(options.folder / CARD, card.encode())
    print(card)
