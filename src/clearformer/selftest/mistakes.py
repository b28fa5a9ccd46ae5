"""G18: what people get wrong first, and the one line that says what to do."""

from __future__ import annotations

from pathlib import Path

from clearformer.selftest import in_process
from clearformer.selftest.processes import require
from clearformer.selftest.toy import Toy

# A command, and words that its answer must have. {run} is a trained run, {text} a text, {csv} a
# table, {place} a folder with nothing else in it.
MISTAKES = """
train modern-tny | did you mean 'modern-tiny'
train gpt3 | there is no model 'gpt3'
train --data {place}/absent.txt | there is no such file or folder
train --data {place}/empty.txt | it is empty, but a text is needed
train --data {place}/one.txt | bytes, but
train --data {place}/latin.txt --tokenizer characters | UTF-8
train --data {place}/wide.txt --tokenizer characters | UTF-8
train --data {place}/hollow | there are no files that end in .txt, .md with anything in them
train --data {text} --out {place}/one.txt | choose another --out
train --data {text} --out {run} | add --resume
train --data {text} --lr 0 | it must be above 0
train --data {text} --lr nan | it must be above 0
train --data {text} --lr inf | it must be
train --data {text} --lr fast | --train.lr
train --data {text} --batch 0 | it must be at least 1
train --data {text} --batch 1048576 | it must be at most 131,072
train --data {text} --threads 100000 | it must be at most 1,024
train --data {text} --processes 100000 | start fewer
train --data {text} --epochs 1e300 | it must be at most 1,000,000,000
train --data {text} --steps 0 | it must be above 0, or absent
train --data {text} --steps 1.5 | --train.steps
train --data {text} --steps 5 --minutes 1 | it must be in one of steps, epochs and minutes
train --data {text} --minutes nan | it must be above 0, or absent
train --data {text} --keep 1 | at least 2
train --data {text} --ema 2 | between 0 and 1
train --data {text} --clip -1 | it must be above 0, or absent
train --data {text} --evaluations 0 | it must be at least 1
train --data {text} --accumulate 3 --batch 4 | it must divide the batch of 4
train --data {text} --seed -1 | from 0 to
train --data {text} --smoothing 1 | at least 0 and below 1
train --data {text} --width 0 | between 1 and 65536
train --data {text} --width 1000000000 | MOST_WIDTH
train --data {text} --layers 1000000000 | MOST_LAYERS
train --data {text} --width 10 --heads 3 --key-heads 3 | heads
train --data {text} --length 0 | between 1 and
train --data {text} --device gpu | gpu
train --data {text} --tokenizer morse | --data.tokenizer
train --data {text} --optimizer sgd | --train
train --data {text} --learning-rate 1 | --learning-rate
train --data {text} --model.dropout.residual 1 | at least 0 and below 1
train --data.validation-share 2 --data {text} | between 0 and 1
train bert-tiny --data {text} --data.masking.share 0 | between 0 and 1
train classifier --data {text} | it is no table
train classifier --data {csv} --data.label colour | colour
train classifier --data {place}/single.csv | at least two labels
train original --data {text} | pairs
train --resume --out {run} --width 64 | model.width
train --resume --out {run} --train.batch 9 | train.batch
train --resume --out {place}/nothing --steps 3 --data {place}/absent.txt | no such file
train --from {place} | no
train classify | --from
generate {place}/absent | is no run
generate {run} x --temperature -1 | temperature
generate {run} x --temperature nan | temperature
generate {run} x --top-p 0 | top
generate {run} x --top-k 0 | top
generate {run} x --length -1 | length
generate {run} x --samples 0 | it must be at least 1
generate {run} x --pattern ( | pattern
generate {run} --file {place}/absent.txt | absent.txt
classify {run} x | is a generator: it can
translate {run} x | is a generator: it can
evaluate {run} --data {place}/absent.txt | there is no such file
evaluate {run} --context 0 | it must be at least 1
evaluate {place} | is no run
import {place} | has no weights
import {place}/absent | there is no folder or file
export {run} --out {text} | {text}
average {run} --last 99 --out {place}/a | ask for fewer
describe nothing | nothing
data fetch nothing | nothing
gnerate {run} | gnerate
generate | required
""".strip()


def first_errors(place: Path, *, every: int) -> str:
    """One in `every` of the usual mistakes: exit 2, one line, with its words."""
    toy = Toy(place, 2)
    toy.finish(place / "run")
    files = {
        "empty.txt": b"",
        "one.txt": b"x",
        "latin.txt": b"caf\xe9 " * 999,
        "wide.txt": "text".encode("utf-16") * 500,
        "text.csv": b"text,label\na,x\nb,y\n",
        "single.csv": b"text,label\na,x\nb,x\n",
    }
    nothing = place / "nothing"
    (nothing / "hollow").mkdir(parents=True)
    for name, content in files.items():
        (nothing / name).write_bytes(content)
    names = {"run": place / "run", "text": toy.text, "csv": nothing / "text.csv", "place": nothing}
    lines = MISTAKES.splitlines()[::every]
    wrong = []
    for line in lines:
        command, _, words = (part.strip() for part in line.format(**names).partition("|"))
        outcome = in_process.run(_outside(command.split(), place))
        if outcome.code != 2 or not outcome.clean or words not in outcome.err:
            wrong.append(f"{command!r} gave {outcome.code} and {outcome.err[-200:]!r}")
    require(not wrong, f"{len(wrong)} of {len(lines)}: {'; '.join(wrong)}")
    return f"{len(lines)} of {len(lines)} mistakes told in one line"


def _outside(words: list[str], place: Path) -> list[str]:
    """Nothing is written where the user stands."""
    if words[0] == "train" and "--out" not in words:
        return [*words, "--out", str(place / "out")]
    return words
