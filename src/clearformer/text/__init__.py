"""Tokenizers: text to ids and back."""

from clearformer.text.byte_fallback import ByteFallbackPairs
from clearformer.text.plain import Bytes, Characters, Words
from clearformer.text.registry import KINDS, from_json, train
from clearformer.text.sentencepiece import SentencePieces
from clearformer.text.subwords import BytePairs, WordPieces
from clearformer.text.tokenizer import Ids, Tokenizer, sha256
