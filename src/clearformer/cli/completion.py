"""`clearformer completion bash`: a script that completes commands and flags in a shell."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

import tyro


@dataclass(frozen=True)
class Completion:
    """Print a script that completes commands and flags: eval "$(clearformer completion bash)"."""

    shell: tyro.conf.Positional[Literal["bash", "zsh", "tcsh", "fish"]]
    """The shell that the script is for."""

    def run(self) -> None:
        tyro.cli(
            all_commands(),
            prog="clearformer",
            args=["--tyro-write-completion", self.shell, "-"],
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands),
        )


def all_commands() -> Any:
    """The commands as one type for the parser; those with presets by their default one."""
    from clearformer.cli.main import VERBS, command_class, parse

    members = []
    for verb in VERBS:
        kind = command_class(verb)
        with_preset = issubclass(kind, _run_settings())
        options: dict[str, Any] = {"default": parse([verb])} if with_preset else {}
        members.append(Annotated[kind, tyro.conf.subcommand(verb, **options)])
    return reduce(or_, members)


def _run_settings() -> type:
    from clearformer.cli.train import RunSettings

    return RunSettings
