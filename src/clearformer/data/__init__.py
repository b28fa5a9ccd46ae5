"""Data: corpora by name, files of one's own, and batches that depend on (seed, step) alone."""

from clearformer.data.corpora import CORPORA, LabelledCorpus, PairCorpus, TextCorpus, corpus
from clearformer.data.corpus_files import Places
from clearformer.data.documents import Documents, encode_documents, files_of
from clearformer.data.files import open_text
from clearformer.data.masked_rows import (
    Alone,
    MaskedBatch,
    MaskedBatches,
    SentencePairs,
)
from clearformer.data.masking import UNITS, Hiding
from clearformer.data.pairs import (
    EncodedPairs,
    PaddedPairs,
    PairBatches,
    encode_pairs,
    evaluation_pairs,
    telling_tokens,
)
from clearformer.data.parallel_files import read_pairs
from clearformer.data.read_texts import read_texts
from clearformer.data.rows import (
    RowBatches,
    Rows,
    batch_width,
    count_cut,
    encode_rows,
    evaluation_rows,
    label_names,
)
from clearformer.data.splits import (
    repeated_rows,
    repeated_text,
    split_pairs,
    split_rows,
    split_text,
)
from clearformer.data.streams import (
    SegmentBatches,
    StreamBatches,
    evaluation_segments,
    evaluation_windows,
)
from clearformer.data.tables import Pairs, Table, is_table, read_table
from clearformer.data.texts import Text, measure_together
from clearformer.data.tokens import TokenArray, TokenFile, prepare
from clearformer.data.write_tables import write_table

__all__ = [
    "CORPORA",
    "UNITS",
    "Alone",
    "Documents",
    "EncodedPairs",
    "Hiding",
    "LabelledCorpus",
    "MaskedBatch",
    "MaskedBatches",
    "PaddedPairs",
    "PairBatches",
    "PairCorpus",
    "Pairs",
    "Places",
    "RowBatches",
    "Rows",
    "SegmentBatches",
    "SentencePairs",
    "StreamBatches",
    "Table",
    "Text",
    "TextCorpus",
    "TokenArray",
    "TokenFile",
    "batch_width",
    "corpus",
    "count_cut",
    "encode_documents",
    "encode_pairs",
    "encode_rows",
    "evaluation_pairs",
    "evaluation_rows",
    "evaluation_segments",
    "evaluation_windows",
    "files_of",
    "is_table",
    "label_names",
    "measure_together",
    "open_text",
    "prepare",
    "read_pairs",
    "read_table",
    "read_texts",
    "repeated_rows",
    "repeated_text",
    "split_pairs",
    "split_rows",
    "split_text",
    "telling_tokens",
    "write_table",
]
