"""G18: frequent user errors, each reported in one line that says what to do."""

from __future__ import annotations

from pathlib import Path

from clearformer.selftest import command_runner
from clearformer.selftest.processes import require
from clearformer.selftest.toy_run import ToyRun

# A command, and a part of its error message. {run} is a trained run, {text} a text, {csv} a table,
# {workdir} a folder without a run.
MISTAKES = """
train modern-tny | did you mean 'modern-tiny'
train gpt3 | there is no model 'gpt3'
train --data {workdir}/absent.txt | there is no such file or folder
train --data {workdir}/empty.txt | it is empty, but a text is needed
train --data {workdir}/one.txt | bytes, but
train --data {workdir}/latin.txt --tokenizer characters | UTF-8
train --data {workdir}/wide.txt --tokenizer characters | UTF-8
train --data {workdir}/hollow | there are no non-empty files that end in .txt, .md
train --data {text} --out {workdir}/one.txt | choose another --out
train --data {text} --out {run} | add --resume
train --data {text} --lr 0 | it must be above 0
train --data {text} --lr nan | it must be above 0
train --data {text} --lr inf | it must be
train --data {text} --lr fast | --train.learning-rate
train --data {text} --batch-size 0 | it must be at least 1
train --data {text} --batch-size 1048576 | it must be at most 131,072
train --data {text} --threads 100000 | it must be at most 1,024
train --data {text} --processes 100000 | start fewer
train --data {text} --epochs 1e300 | it must be at most 1,000,000,000
train --data {text} --steps 0 | it must be above 0, or absent
train --data {text} --steps 1.5 | --train.steps
train --data {text} --steps 5 --minutes 1 | it must be in one of steps, epochs and minutes
train --data {text} --minutes nan | it must be above 0, or absent
train --data {text} --keep-checkpoints 1 | at least 2
train --data {text} --ema-decay 2 | between 0 and 1
train --data {text} --gradient-clip -1 | it must be above 0, or absent
train --data {text} --evaluations 0 | it must be at least 1
train --data {text} --accumulation-steps 3 --batch-size 4 | it must divide the batch of 4
train --data {text} --seed -1 | from 0 to
train --data {text} --label-smoothing 1 | at least 0 and below 1
train --data {text} --width 0 | between 1 and 65536
train --data {text} --width 1000000000 | MAX_WIDTH
train --data {text} --layers 1000000000 | MAX_LAYERS
train --data {text} --width 10 --heads 3 --key-heads 3 | heads
train --data {text} --length 0 | between 1 and
train --data {text} --device gpu | gpu
train --data {text} --tokenizer morse | --data.tokenizer
train --data {text} --optimizer sgd | --train
train --data {text} --learning-rate 1 | --learning-rate
train --data {text} --model.dropout.residual 1 | at least 0 and below 1
train --data.validation-fraction 2 --data {text} | between 0 and 1
train bert-tiny --data {text} --data.masking.rate 0 | between 0 and 1
train classifier --data {text} | is not a table
train classifier --data {csv} --data.label-column colour | colour
train classifier --data {workdir}/single.csv | at least two labels
train original --data {text} | pairs
train --resume --out {run} --width 64 | model.width
train --resume --out {run} --train.batch-size 9 | train.batch_size
train --resume --out {workdir}/nothing --steps 3 --data {workdir}/absent.txt | no such file
train --from {workdir} | no
train classify | --from
generate {workdir}/absent | there is no folder or file
generate {run} x --temperature -1 | temperature
generate {run} x --temperature nan | temperature
generate {run} x --top-p 0 | top
generate {run} x --top-k 0 | top
generate {run} x --max-tokens -1 | max
generate {run} x --samples 0 | it must be at least 1
generate {run} x --pattern ( | pattern
generate {run} --file {workdir}/absent.txt | absent.txt
classify {run} x | is a generator: it can
translate {run} x | is a generator: it can
evaluate {run} --data {workdir}/absent.txt | there is no such file
evaluate {run} --context 0 | it must be at least 1
evaluate {workdir} | is not a run
import {workdir} | has no weights
import {workdir}/absent | there is no folder or file
export {run} --out {text} | {text}
average {run} --last 99 --out {workdir}/a | use a smaller number
describe nothing | nothing
data fetch nothing | nothing
gnerate {run} | gnerate
generate | required
""".strip()


def first_errors(workdir: Path, *, every: int) -> str:
    """Every n-th of the errors: exit code 2 and one line with the expected words."""
    toy = ToyRun(workdir, 2)
    toy.finish(workdir / "run")
    files = {
        "empty.txt": b"",
        "one.txt": b"x",
        "latin.txt": b"caf\xe9 " * 999,
        "wide.txt": "text".encode("utf-16") * 500,
        "text.csv": b"text,label\na,x\nb,y\n",
        "single.csv": b"text,label\na,x\nb,x\n",
    }
    nothing = workdir / "nothing"
    (nothing / "hollow").mkdir(parents=True)
    for name, content in files.items():
        (nothing / name).write_bytes(content)
    names = {
        "run": workdir / "run",
        "text": toy.text,
        "csv": nothing / "text.csv",
        "workdir": nothing,
    }
    lines = MISTAKES.splitlines()[::every]
    wrong = []
    for line in lines:
        command, _, expected = (part.strip() for part in line.format(**names).partition("|"))
        outcome = command_runner.run(_with_out(command.split(), workdir))
        if outcome.code != 2 or not outcome.clean or expected not in outcome.err:
            wrong.append(f"{command!r} gave {outcome.code} and {outcome.err[-200:]!r}")
    require(not wrong, f"{len(wrong)} of {len(lines)}: {'; '.join(wrong)}")
    return f"{len(lines)} of {len(lines)} errors reported in one line"


def _with_out(arguments: list[str], workdir: Path) -> list[str]:
    """Write nothing into the current folder."""
    if arguments[0] == "train" and "--out" not in arguments:
        return [*arguments, "--out", str(workdir / "out")]
    return arguments
