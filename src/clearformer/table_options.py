"""TableOptions: how a table is read, and what happens to rows that need a decision.

Shared by configs, which hold them, and the readers of `data`, which follow them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clearformer.arguments import require_choice


@dataclass(frozen=True, kw_only=True)
class TableFormat:
    """How the bytes of a table become rows."""

    encoding: str | None = None
    """Encoding of a table, such as cp1252 or utf-16; none: what its bytes say."""
    delimiter: str | None = None
    """What separates the fields of a .csv or .tsv, such as ; or tab; none: what the header says."""
    sheet: str | None = None
    """Sheet of an .xlsx file; none: the first."""
    bad_rows: Literal["error", "skip"] = "error"
    """Rows of a .csv or .tsv with too many or too few fields."""

    def __post_init__(self) -> None:
        for name in ("encoding", "delimiter", "sheet"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise ValueError(f"{name} is {value!r:.60}, but it must be a text")
        if self.delimiter is not None and len(self.separator or "") != 1:
            raise ValueError(
                f"delimiter is {self.delimiter!r:.60}, but it must be one character, or tab"
            )
        require_choice("bad_rows", self.bad_rows, ("error", "skip"))

    @property
    def separator(self) -> str | None:
        """The character of `delimiter`, which may be spelled: tab, comma, semicolon, pipe."""
        return _character(self.delimiter)


def _character(name: str | None) -> str | None:
    names = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}
    return None if name is None else names.get(name, name)


@dataclass(frozen=True, kw_only=True)
class LabelledFormat(TableFormat):
    """How the rows of a table become labelled texts."""

    unlabelled: Literal["skip", "error", "keep"] = "skip"
    """Rows without a label; with several labels a text, keep takes them as texts that have none."""
    label_separator: str | None = None
    """What separates several labels in a field, such as ; or pipe; none: the one of ; | , that most
    labels have."""
    empty: Literal["skip", "keep", "error"] = "skip"
    """Rows whose text is empty."""
    normalize_labels: bool = True
    """Merge labels that differ only in case or spaces, or as 1 and 1.0 do."""
    duplicates: Literal["keep", "drop"] = "keep"
    """Rows that repeat the text and the label of another."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("unlabelled", self.unlabelled, ("skip", "error", "keep"))
        if self.label_separator is not None and not isinstance(self.label_separator, str):
            raise ValueError(f"label_separator is {self.label_separator!r:.60}, not a text")
        if self.label_separator == "":
            raise ValueError("label_separator is empty: give a character such as ; or leave it out")
        require_choice("empty", self.empty, ("skip", "keep", "error"))
        require_choice("duplicates", self.duplicates, ("keep", "drop"))
        if not isinstance(self.normalize_labels, bool):
            raise ValueError(
                f"normalize_labels is {self.normalize_labels!r:.60}, but it must be True or False"
            )

    @property
    def between_labels(self) -> str | None:
        """The character or text of `label_separator`, which may be spelled."""
        return _character(self.label_separator)


@dataclass(frozen=True, kw_only=True)
class TableOptions(LabelledFormat):
    """How a table is read that is split into training and validation data."""

    rare: Literal["keep", "drop", "error"] = "keep"
    """Classes with a single text, of which none can be held back: keep them in training alone,
    drop them, or stop."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("rare", self.rare, ("keep", "drop", "error"))


# As tables were read before there were options: what runs of earlier versions were trained on.
EARLIER = TableOptions(unlabelled="error", empty="keep", rare="error", normalize_labels=False)
