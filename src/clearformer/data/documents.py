"""Documents as sentences, for masked tokens and next-sentence prediction.

A document is a row of a table, or a file of a text. A sentence ends at a line break (`<br />`
too), or after `.`, `!` or `?` and white space. That is coarse on purpose: BERT's "sentence" is any
span of text that ends where a sentence may end.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from clearformer.data.texts import Fingerprint, TextSource, changed_while_read
from clearformer.text.tokenizer import Tokenizer
from clearformer.text.utf8 import NotTextError, decode

SENTENCE_END = re.compile(r"(?<=[.!?])\s+|[\r\n]+|<br\s*/?>")
GROUP = 10_000  # sentences that are encoded at a time, on all cores


@dataclass(frozen=True)
class Documents:
    """Encoded sentences, concatenated in `flat`.

    Sentence s goes from sentences[s] to sentences[s + 1] in `flat`; document d has the
    sentences from documents[d] to documents[d + 1]. None of them is empty.
    """

    flat: NDArray[np.int32]
    sentences: NDArray[np.int64]
    documents: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.documents) - 1

    def sha256(self) -> str:
        """Identity: the ids, and where sentences and documents begin."""
        digest = hashlib.sha256(self.flat.astype("<i4").tobytes())
        digest.update(self.sentences.astype("<i8").tobytes())
        digest.update(self.documents.astype("<i8").tobytes())
        return digest.hexdigest()


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, in order."""
    return [each for each in map(str.strip, SENTENCE_END.split(text)) if each]


def file_texts(text: TextSource) -> Iterator[str]:
    """The files of a text, one string each; ValueError with file and line if not UTF-8."""
    before, digest = 0, hashlib.sha256()
    with text.explaining():
        for data in text.files():
            try:
                yield decode(data)
            except NotTextError as error:
                raise NotTextError(before + error.offset, error.reason) from None
            before += len(data)
            digest.update(data)
    if Fingerprint(before, digest.hexdigest()) != text.fingerprint:
        raise changed_while_read(text.name)


def encode_documents(name: str, texts: Iterable[str], tokenizer: Tokenizer) -> Documents:
    """Encode every text as a document of sentences; texts without tokens are left out."""
    owners: list[int] = []  # the document of each sentence

    def sentences() -> Iterator[str]:
        for number, text in enumerate(texts):
            for sentence in split_sentences(text):
                owners.append(number)
                yield sentence

    source = sentences()
    encoded: list[NDArray[np.int32]] = []
    while group := list(islice(source, GROUP)):
        encoded += tokenizer.encode_many(group)
    sizes = np.array([len(ids) for ids in encoded], dtype=np.int64)
    if not sizes.sum():
        raise ValueError(f"{name}: it has no tokens, but a text is needed")
    # A sentence of control characters has no tokens and is dropped.
    document = np.array(owners, dtype=np.int64)[sizes > 0]
    first = np.flatnonzero(np.diff(document, prepend=-1))
    return Documents(
        flat=np.concatenate(encoded),
        sentences=np.concatenate(([0], np.cumsum(sizes[sizes > 0]))),
        documents=np.append(first, len(document)),
    )
