"""Data: corpora by name, files of one's own, and batches that depend on (seed, step) alone."""

from clearformer.data.corpora import CORPORA, LabelledCorpus, PairCorpus, TextCorpus, corpus
from clearformer.data.files import open_text
from clearformer.data.published import Places
from clearformer.data.rows import RowBatches, Rows, encode_rows, evaluation_rows, label_names
from clearformer.data.splits import repeated_rows, repeated_text, split_rows, split_text
from clearformer.data.streams import (
    SegmentBatches,
    StreamBatches,
    evaluation_segments,
    evaluation_windows,
)
from clearformer.data.tables import Pairs, Table, is_table, read_table
from clearformer.data.texts import Text
from clearformer.data.tokens import TokenArray, TokenFile, prepare

__all__ = [
    "CORPORA",
    "LabelledCorpus",
    "PairCorpus",
    "Pairs",
    "Places",
    "RowBatches",
    "Rows",
    "SegmentBatches",
    "StreamBatches",
    "Table",
    "Text",
    "TextCorpus",
    "TokenArray",
    "TokenFile",
    "corpus",
    "encode_rows",
    "evaluation_rows",
    "evaluation_segments",
    "evaluation_windows",
    "is_table",
    "label_names",
    "open_text",
    "prepare",
    "read_table",
    "repeated_rows",
    "repeated_text",
    "split_rows",
    "split_text",
]
