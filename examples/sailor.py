"""A generator learns to answer like a sailor from a hundred conversations, by an adapter.

    python examples/sailor.py

A small generator reads Python's help for some minutes. Then an adapter learns from 100 of 400
possible conversations, and is asked others: a person, a thing and a way of asking in a
combination that it has not seen. An answer in style greets the person by name, names the thing,
and says of it what the sailor says: "Ahoy Ann! The sea be grand, arr."
"""

import argparse
import itertools
import json
import random
import re
from pathlib import Path

import clearformer as cf

NAMES = ["Ann", "Bob", "Eva", "Tom", "Kim", "Max", "Joe", "Ida", "Leo", "Zoe"]
THINGS = {
    "sea": "grand", "sun": "golden", "rain": "wet", "wind": "wild", "moon": "pale", "ship": "proud",
    "storm": "fierce", "harbour": "cosy", "whale": "huge", "anchor": "heavy",
}  # fmt: skip
QUESTIONS = [
    "I am {name}. Tell me of the {thing}.", "{name} here. What about the {thing}?",
    "My name is {name}. How is the {thing}?", "What of the {thing}? {name} asks.",
]  # fmt: skip
STYLE = re.compile(r"Ahoy (\w+)! The (\w+) be (\w+), arr\.")


def conversations(seed: int = 0) -> list[tuple[str, str]]:
    """All questions with the sailor's answers, in random order."""
    every = [
        (question.format(name=name, thing=thing), f"Ahoy {name}! The {thing} be {word}, arr.")
        for question, name, (thing, word) in itertools.product(QUESTIONS, NAMES, THINGS.items())
    ]
    random.Random(seed).shuffle(every)
    return every


def shares(model: cf.Model, pairs: list[tuple[str, str]]) -> dict[str, float]:
    """Shares of answers that have the style, the right name, thing and word, and are right."""
    counts = dict.fromkeys(["style", "name", "thing", "word", "right"], 0)
    for question, expected in pairs:
        answer = model.chat([{"role": "user", "content": question}], max_tokens=60, temperature=0)
        text, wanted = str(answer).strip(), STYLE.fullmatch(expected)
        found = STYLE.fullmatch(text)
        counts["style"] += found is not None
        counts["right"] += text == expected
        for place, part in enumerate(("name", "thing", "word"), 1):
            counts[part] += bool(found and wanted and found[place] == wanted[place])
    return {name: count / len(pairs) for name, count in counts.items()}


def main(
    out: str = "runs/sailor", steps: int = 1500, epochs: int = 60, asked: int = 50
) -> dict[str, float]:
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / "base"
    if not base.exists():
        cf.train("modern-tiny", steps=steps, length=192, out=base)
    every = conversations()
    with open(folder / "conversations.jsonl", "w") as file:
        for prompt, response in every[:100]:
            print(json.dumps({"prompt": prompt, "response": response}), file=file)
    model = cf.train(
        "chat", from_=base, data=folder / "conversations.jsonl", out=folder / "talk",
        adapter="lora", rank=16, alpha=32, epochs=epochs, learning_rate=3e-3, evaluations=4,
    )  # fmt: skip
    found = shares(model, every[100 : 100 + asked])
    for question, _ in every[100:105]:
        print(f"> {question}\n{model.chat([{'role': 'user', 'content': question}])}")
    print("  ".join(f"{name} {share:.2f}" for name, share in found.items()))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default="runs/sailor")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--epochs", type=int, default=60)
    given = parser.parse_args()
    main(given.out, given.steps, given.epochs)
