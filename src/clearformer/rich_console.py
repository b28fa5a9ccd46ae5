"""rich's console for untrusted text: without markup, and with control characters escaped."""

from __future__ import annotations

from rich.console import Console, RenderableType
from rich.text import Text

from clearformer.escape import escape_line

Part = str | tuple[str, str]  # of a line; with a style


class Terminal(Console):
    """rich's console without markup; a closed pipe raises BrokenPipeError as in every verb."""

    def __init__(self) -> None:
        super().__init__(highlight=False, markup=False, emoji=False)

    def say(self, *parts: Part, soft_wrap: bool = False) -> None:
        """Write one line, escaped."""
        self.print(plain(*parts), soft_wrap=soft_wrap)

    def draw(self, figure: RenderableType) -> None:
        """Draw a table or a tree, whose cells are `plain`."""
        self.print(figure)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def plain(*parts: Part) -> Text:
    """Text for rich without markup and control characters."""
    pairs = (part if isinstance(part, tuple) else (part, "") for part in parts)
    return Text.assemble(*((escape_line(text), style) for text, style in pairs))
