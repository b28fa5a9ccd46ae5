"""rich's console for untrusted text."""

import pytest

from clearformer.rich_console import Terminal, plain


def test_markup_and_control_characters_are_not_interpreted(capsys):
    Terminal().say("[red]x[/red]", (" \x1b[2J", "bold"))
    assert capsys.readouterr().out == "[red]x[/red] \\x1b[2J\n"
    assert plain("a\nb").plain == "a\\nb"


def test_closed_pipe_raises():
    with pytest.raises(BrokenPipeError):
        Terminal().on_broken_pipe()
