"""Data: corpora by name, the user's files, and batches as a function of (seed, step)."""

from clearformer.data.conversations import parse_conversation, read_conversations
from clearformer.data.corpora import CORPORA, LabelledCorpus, PairCorpus, TextCorpus, corpus
from clearformer.data.corpus_files import DataFolders
from clearformer.data.documents import Documents, encode_documents, file_texts
from clearformer.data.files import list_folder, open_text
from clearformer.data.label_forms import FORMS, LABEL_SETS, NUMBERS, ONE_LABEL, LabelForm
from clearformer.data.masked_rows import MaskedBatch, MaskedBatches, SentencePairs, SingleSpan
from clearformer.data.masking import UNITS, MaskingPolicy
from clearformer.data.packing import (
    Example,
    PackedBatches,
    PackedRows,
    evaluation_examples,
)
from clearformer.data.pairs import (
    EncodedPairs,
    PaddedPairs,
    PairBatches,
    distinctive_tokens,
    encode_pairs,
    evaluation_pairs,
)
from clearformer.data.parallel_files import read_pairs
from clearformer.data.read_texts import read_texts
from clearformer.data.rows import (
    RowBatch,
    RowBatches,
    Rows,
    batch_width,
    count_truncated,
    encode_rows,
    encode_texts,
    evaluation_rows,
    label_names,
    truncated_share,
)
from clearformer.data.splits import (
    repeated_rows,
    repeated_text,
    share_of_indices,
    share_of_rows,
    split_indices,
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
from clearformer.data.table_files import open_table
from clearformer.data.tables import Pairs, Table, all_records, is_table, read_table
from clearformer.data.texts import TextSource, fingerprint_together
from clearformer.data.tokens import TokenArray, TokenFile, prepare
from clearformer.data.write_tables import write_table
