"""`clearformer VERB ...`: read the words, run the verb, and turn mistakes into one line each.

Exit codes: 0 done, 1 a defect of ours, 2 a mistake in what was asked (one line, no traceback),
3 a loss that is no number, 129, 130 and 143 stopped by a signal (SIGHUP, SIGINT, SIGTERM).
"""

import contextlib
import errno
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

from clearformer import __version__
from clearformer.cli.attend import Attend
from clearformer.cli.average import Average
from clearformer.cli.classify import Classify
from clearformer.cli.data import Data
from clearformer.cli.describe import Describe
from clearformer.cli.embed import Embed
from clearformer.cli.evaluate import Evaluate
from clearformer.cli.explore import Explore
from clearformer.cli.exporting import Export
from clearformer.cli.fill import Fill
from clearformer.cli.generate import Generate
from clearformer.cli.importing import Import
from clearformer.cli.launch import watch_launcher
from clearformer.cli.output import Help, say, tell
from clearformer.cli.plan import Plan
from clearformer.cli.plan import parse as parse_plan
from clearformer.cli.reach import Reach
from clearformer.cli.renamed_flags import current_flags
from clearformer.cli.resource_errors import require_address_space, resource_error
from clearformer.cli.selftest import Selftest
from clearformer.cli.standard_streams import settle_streams, silence
from clearformer.cli.train import Train
from clearformer.cli.train import parse as parse_train
from clearformer.cli.translate import Translate

Verb = (
    Train
    | Evaluate
    | Generate
    | Classify
    | Fill
    | Translate
    | Embed
    | Import
    | Export
    | Average
    | Data
    | Describe
    | Attend
    | Reach
    | Explore
    | Selftest
    | Plan
)
TYPES = {"{None}": "none", "INT": "a whole number", "FLOAT": "a number", "STR": "a text"}
ABOUT = """Transformers made clear: see every step, build every architecture, trust each part."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; leaves by SystemExit with the exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    settle_streams()
    watch_launcher(os.environ)
    if arguments == ["--version"]:
        say(f"clearformer {__version__}")
        sys.exit(0)
    try:
        # Without a verb there is nothing to correct: show what there is.
        verb = parse(arguments or ["--help"])
        require_address_space()
        verb.run()
    except BrokenPipeError:
        # Whoever read us has had enough (`| head`); Python would complain of it at its own end.
        silence(sys.stdout.fileno())
        sys.exit(141)
    except OSError as mistake:
        fail(resource_error(mistake) or by_the_system(mistake))
    except ValueError as mistake:
        fail(str(mistake))
    except (MemoryError, ImportError, RuntimeError) as problem:
        if (sentence := resource_error(problem)) is None:
            raise
        fail(sentence)
    except KeyboardInterrupt:
        sys.exit(130)


def parse(arguments: Sequence[str]) -> Verb:
    arguments = current_flags(with_picture(arguments))
    complaint, help_text = io.StringIO(), Help()
    try:
        with contextlib.redirect_stderr(complaint), contextlib.redirect_stdout(help_text):
            # The flags of `train` depend on the preset, so it reads its own words.
            if arguments[:1] == ["train"]:
                return parse_train(arguments[1:])
            if arguments[:1] == ["plan"]:
                return parse_plan(arguments[1:])
            verb: Verb = tyro.cli(
                Annotated[Train, tyro.conf.subcommand("train", default=parse_train([]))]
                | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
                | Annotated[Generate, tyro.conf.subcommand("generate")]
                | Annotated[Classify, tyro.conf.subcommand("classify")]
                | Annotated[Fill, tyro.conf.subcommand("fill")]
                | Annotated[Embed, tyro.conf.subcommand("embed")]
                | Annotated[Import, tyro.conf.subcommand("import")]
                | Annotated[Export, tyro.conf.subcommand("export")]
                | Annotated[Translate, tyro.conf.subcommand("translate")]
                | Annotated[Average, tyro.conf.subcommand("average")]
                | Annotated[Data, tyro.conf.subcommand("data")]
                | Annotated[Describe, tyro.conf.subcommand("describe")]
                | Annotated[Attend, tyro.conf.subcommand("attend")]
                | Annotated[Reach, tyro.conf.subcommand("reach")]
                | Annotated[Explore, tyro.conf.subcommand("explore")]
                | Annotated[Selftest, tyro.conf.subcommand("selftest")]
                | Annotated[Plan, tyro.conf.subcommand("plan", default=parse_plan([]))],
                prog="clearformer",
                description=ABOUT,
                args=arguments,
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands),
            )
            return verb
    except SystemExit as leaving:
        if leaving.code == 2:
            fail(one_line(complaint.getvalue()))
        help_text.release()
        raise


def with_picture(words: Sequence[str]) -> list[str]:
    """A `--picture` that names no file gets one with the name of the verb."""
    named = []
    for word, following in zip(words, [*words[1:], "--"], strict=True):
        named.append(word)
        if word == "--picture" and following.startswith("--"):
            named.append(f"{words[0]}.png")
    return named


def one_line(box: str) -> str:
    """The parser's framed complaint as one sentence; a rule inside the frame ends a clause."""
    clauses = [""]
    for line in re.sub(r"\x1b\[[0-9;]*m", "", box).splitlines()[1:]:  # the first is a title
        # Where the terminal knows ASCII alone the frame is made of spaces and dashes.
        words = re.sub(r"[│╭╮╰╯─]+|^\s*-{3,}\s*$", " ", line).strip()
        if words:
            clauses[-1] = f"{clauses[-1]} {words}".strip()
        else:
            clauses.append("")
    return plainly("; ".join(clause for clause in clauses if clause))


def plainly(complaint: str) -> str:
    """The parser's words for a value of the wrong type, in ours."""
    union = re.match(
        r"Error parsing (--\S+): no type matching (\S+) could be .*? \['(.*?)'\]", complaint
    )
    if union is not None:
        flag, types, value = union.groups()
        wanted = " or ".join(TYPES.get(each, each) for each in types.split("|"))
        return f"{flag} is {value!r}, but it must be {wanted}"
    # Its guesses without their help: names are enough for who has mistyped one.
    complaint = re.sub(r"; Argument helptext.*?(?=; For full|$)", "", complaint)
    guess = re.search(r"; Perhaps you meant(.*?)(?=; For full|$)", complaint)
    if guess is not None:
        flags = dict.fromkeys(re.findall(r"--(?!help)[a-z][\w.-]*", guess[1]))
        near = f"; perhaps {' or '.join(list(flags)[:3])}" if flags else ""
        complaint = complaint.replace(guess[0], near)
    complaint = re.sub(r"^Error parsing \w+(\.\w+)*: ", "", complaint)
    complaint = re.sub(
        r"invalid literal for int\(\) with base 10: ('.*?')", r"\1 is no whole number", complaint
    )
    return re.sub(r"could not convert string to float: ('.*?')", r"\1 is no number", complaint)


REFUSALS = {
    errno.EACCES: "you may not use it: change its permissions, or choose another place",
    errno.EPERM: "you may not use it: change its permissions, or choose another place",
    errno.EROFS: "nothing can be written there: choose another place",
    errno.ENOENT: "there is no such file or folder: check the path",
    errno.EISDIR: "it is a folder, but a file is needed",
    errno.ENOTDIR: "a part of this path is a file and no folder",
    errno.ENAMETOOLONG: "this name is too long for the system: choose a shorter one",
    errno.ELOOP: "its links lead in a circle: name the file itself",
    errno.ENOSPC: "there is no space left: free some, or choose another place",
}


def by_the_system(mistake: OSError) -> str:
    """What the system refuses, where nobody nearer has said it better."""
    if mistake.filename is None or mistake.errno is None:
        return str(mistake)
    name = str(mistake.filename)
    name = name if len(name) <= 500 else f"{name[:100]}..."
    return f"{name}: {REFUSALS.get(mistake.errno, mistake.strerror)}"


def fail(sentence: str) -> None:
    with contextlib.suppress(OSError):  # nobody may be there to read it; the code says it too
        tell(f"clearformer: {sentence}")
    sys.exit(2)
