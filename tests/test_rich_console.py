"""rich's console for untrusted text."""

import pytest

from clearformer.rich_console import Terminal, plain


def test_markup_and_control_characters_are_shown_as_they_are(capsys):
    Terminal().say("[red]x[/red]", (" \x1b[2J", "bold"))
    assert capsys.readouterr().out == "[red]x[/red] \\x1b[2J\n"
    assert plain("a\nb").plain == "a\\nb"


def test_a_closed_pipe_is_an_error():
    with pytest.raises(BrokenPipeError):
        Terminal().on_broken_pipe()
