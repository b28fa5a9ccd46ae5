"""`clearformer COMMAND ...`: parse the words, run the command, report errors in one line each.

Exit codes: 0 success, 1 a bug in clearformer, 2 an error in the input (one line, no traceback),
3 a NaN loss, 129, 130 and 143 stopped by a signal (SIGHUP, SIGINT, SIGTERM).
"""

import contextlib
import errno
import importlib
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from clearformer import __version__
from clearformer.cli.launch import watch_launcher
from clearformer.cli.output import Help, say, say_wrapped, tell, with_flags
from clearformer.cli.renamed_flags import current_flags
from clearformer.cli.resource_errors import require_address_space, resource_error
from clearformer.cli.standard_streams import settle_streams, silence
from clearformer.cli.usual_spellings import usual_spellings
from clearformer.did_you_mean import closest

ABOUT = "Transformers made clear: train them, use them, look inside them."
# Every command: the module and the class that it is; imported only when it is used.
COMMANDS = {
    "Train and evaluate": {
        "train": "train:Train",
        "evaluate": "evaluate:Evaluate",
        "plan": "plan:Plan",
        "data": "data:Data",
        "runs": "runs:Runs",
        "compare": "compare:Compare",
        "tensorboard": "tensorboard:TensorBoard",
        "average": "average:Average",
        "merge": "merging:Merge",
    },
    "Use a model": {
        "generate": "generate:Generate",
        "chat": "chat:Chat",
        "classify": "classify:Classify",
        "predict": "classify:Predict",
        "label": "label:Label",
        "answer": "answer:Answer",
        "fill": "fill:Fill",
        "translate": "translate:Translate",
        "embed": "embed:Embed",
        "serve": "serve:Serve",
        "compress": "compress:Compress",
        "decompress": "compress:Decompress",
    },
    "Learn and look inside": {
        "learn": "learn:Learn",
        "attend": "attend:Attend",
        "explore": "explore:Explore",
        "describe": "describe:Describe",
        "reach": "reach:Reach",
        "ablate": "ablate:Ablate",
        "patch": "patch:Patch",
    },
    "Exchange and check": {
        "import": "importing:Import",
        "export": "exporting:Export",
        "verify": "verify:Verify",
        "selftest": "selftest:Selftest",
        "completion": "completion:Completion",
    },
}
VERBS = {verb: place for group in COMMANDS.values() for verb, place in group.items()}
FIRST_COMMANDS = (
    ('clearformer attend "mary gave roses to susan"', "self-attention, step by step"),
    ("clearformer train --data my.txt --minutes 10 --out runs/mine", "train a text generator"),
    ("clearformer evaluate runs/mine", "measure it on held-out text"),
    ('clearformer generate runs/mine "Once upon"', "continue a text"),
    ("clearformer explore runs/mine", "look inside it, in a browser"),
)


class Command(Protocol):
    """A parsed command."""

    def run(self) -> None: ...


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; ends in SystemExit with the exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments[:1] == ["help"] and len(arguments) > 1:  # clearformer help train
        arguments = [*arguments[1:], "--help"]
    settle_streams()
    watch_launcher(os.environ)
    command: Command | None = None
    try:
        if not _overview(arguments):
            require_address_space()  # before anything large is imported
            command = parse(arguments)
            _run(command)
    except BrokenPipeError:
        # The reader has closed the pipe (`| head`); without this Python reports it at exit.
        silence(sys.stdout.fileno())
        sys.exit(141)
    except OSError as problem:
        fail(resource_error(problem) or system_error(problem))
    except ValueError as problem:
        fail(with_flags(str(problem), command))
    except (MemoryError, ImportError, RuntimeError) as problem:
        if (sentence := resource_error(problem)) is None:
            raise
        fail(sentence)
    except KeyboardInterrupt:
        sys.exit(130)


def _run(command: Command) -> None:
    """Run a command, showing how many rows of a large table have been read."""
    # Here, since numpy comes with it.
    from clearformer.cli.inputs import rows_read
    from clearformer.data.reading_progress import listening

    with listening(rows_read):
        command.run()


def _overview(arguments: Sequence[str]) -> bool:
    """Print what was asked for without a command; False if there is a command."""
    match arguments:
        case []:
            _print_first_commands()
        case ["-h" | "--help", *_] | ["help"]:
            _print_commands()
        case ["-V" | "--version", *_]:
            say(f"clearformer {__version__}")
        case _:
            return False
    sys.stdout.flush()
    return True


def _print_first_commands() -> None:
    say(ABOUT)
    width = max(len(command) for command, _ in FIRST_COMMANDS)
    say()
    for command, purpose in FIRST_COMMANDS:
        say(f"  {command:{width}}   {purpose}")
    say()
    say("clearformer --help lists all commands, clearformer COMMAND --help the flags of one.")


def _print_commands() -> None:
    say("usage: clearformer COMMAND ...")
    say()
    say_wrapped(ABOUT)
    for group, verbs in COMMANDS.items():
        say()
        say(f"{group}:")
        for verb in verbs:
            say_wrapped(summary(verb), f"  {verb:11} ", " " * 14)
    say()
    say_wrapped(
        "clearformer COMMAND --help explains a command, clearformer --version prints the version."
    )


def summary(verb: str) -> str:
    """The first sentence of a command's help."""
    return " ".join((command_class(verb).__doc__ or "").split("\n\n")[0].split())


def command_class(verb: str) -> Any:
    """The class of a command."""
    module, _, name = VERBS[verb].partition(":")
    return getattr(importlib.import_module(f"clearformer.cli.{module}"), name)


def parse(arguments: Sequence[str]) -> Command:
    """The command that the words describe."""
    verb, *words = current_flags(usual_spellings(with_picture(arguments)))
    if verb not in VERBS:
        raise ValueError(unknown_command(verb))
    from clearformer.cli import parser

    kind = command_class(verb)
    # `train` and `plan` have a parser of their own: their flags depend on the preset.
    own = getattr(sys.modules[kind.__module__], "parse", None)
    help_text = Help()
    try:
        with contextlib.redirect_stdout(help_text):
            command: Command = (
                parser.read(kind, words, f"clearformer {verb}") if own is None else own(words)
            )
            return command
    except SystemExit:
        help_text.release()
        raise


# What people type for a command that has another name here.
OTHER_NAMES = {
    "finetune": "train", "fine-tune": "train", "fit": "train", "pretrain": "train",
    "eval": "evaluate", "test": "evaluate", "validate": "evaluate", "score": "evaluate",
    "infer": "generate", "complete": "generate", "sample": "generate",
    "write": "generate", "run": "generate", "encode": "embed", "regress": "predict",
    "list": "runs", "ls": "runs", "diff": "compare", "info": "describe", "show": "describe",
    "presets": "describe", "models": "describe", "convert": "import",
    "ui": "explore", "web": "explore", "inspect": "data", "profile": "data", "check": "verify",
}  # fmt: skip


def unknown_command(verb: str) -> str:
    """The error for a command that does not exist, with the nearest one."""
    guess = OTHER_NAMES.get(verb.lower()) or closest(verb.lower(), VERBS)
    if guess is not None:
        return f"there is no command {verb!r}: did you mean {guess!r}? See clearformer --help"
    if os.path.exists(verb):
        return (
            f"there is no command {verb!r}, but there is such a file or folder: clearformer train "
            f"--data {shlex.quote(verb)} learns from it, clearformer --help lists the commands"
        )
    return f"there is no command {verb!r}: clearformer --help lists them"


def with_picture(words: Sequence[str]) -> list[str]:
    """A `--picture` without a file name gets the name of the command."""
    named = []
    for word, following in zip(words, [*words[1:], "--"], strict=True):
        named.append(word)
        if word == "--picture" and following.startswith("--"):
            named.append(f"{words[0]}.png")
    return named


SYSTEM_ERRORS = {
    errno.EACCES: "permission denied: change its permissions, or choose another place",
    errno.EPERM: "permission denied: change its permissions, or choose another place",
    errno.EROFS: "the file system is read-only: choose another place",
    errno.ENOENT: "there is no such file or folder: check the path",
    errno.EISDIR: "it is a folder, but a file is needed",
    errno.ENOTDIR: "a part of this path is a file and not a folder",
    errno.ENAMETOOLONG: "this name is too long for the system: choose a shorter one",
    errno.ELOOP: "its links lead in a circle: name the file itself",
    errno.ENOSPC: "there is no space left: free some, or choose another place",
}


def system_error(problem: OSError) -> str:
    """An error of the operating system, as a sentence."""
    if problem.filename is None or problem.errno is None:
        return str(problem)
    name = str(problem.filename)
    name = name if len(name) <= 500 else f"{name[:100]}..."
    return f"{name}: {SYSTEM_ERRORS.get(problem.errno, problem.strerror)}"


def fail(sentence: str) -> None:
    """Report an error and exit with code 2."""
    with contextlib.suppress(OSError):  # stderr may be closed; the exit code remains
        tell(f"clearformer: {sentence}")
    sys.exit(2)
