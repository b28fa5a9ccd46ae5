"""Limits on untrusted files, requests and settings.

Every limit is defined here, and the error that applies it names it. The values are far above
anything published, and far below what would exhaust a machine's memory or take hours.
"""

# --- files ---------------------------------------------------------------------------------

MAX_JSON_BYTES = 64 * 2**20  # bytes of a JSON file; the largest tokenizers have about 20 million
MAX_RECORDS_BYTES = 2**30  # bytes of metrics.jsonl or samples.jsonl; a step has about 200
MAX_RECORDS = 5_000_000  # lines of one of these files
MAX_SPM_BYTES = 64 * 2**20  # bytes of a SentencePiece model; published ones have about 1 million
MAX_SHARDS = 1000  # shards of one checkpoint
MAX_PICKLE_BYTES = 50 * 2**30  # bytes of a .bin or .pt file
MAX_GGUF_HEADER_BYTES = 64 * 2**20  # bytes before the tensors; large vocabularies need 15 million
MAX_GGUF_KEYS, MAX_GGUF_TENSORS = 10_000, 100_000
MAX_GGUF_ITEMS = 2**22  # items of an array: tokens, merges, scores

# --- archives ------------------------------------------------------------------------------

MAX_ARCHIVE_FILES = 200_000  # files in an archive
MAX_UNPACK_RATIO = 200  # unpacked bytes per packed byte
RATIO_FREE_BYTES = 16 * 2**20  # unpacked bytes below which the ratio is not checked
MAX_ARCHIVE_BYTES = 4 * 2**30  # unpacked bytes of an archive

# --- models --------------------------------------------------------------------------------

MAX_LAYERS, MAX_HEADS, MAX_CLASSES, MAX_SEGMENTS = 1000, 1024, 100_000, 1024
MAX_BATCH = 2**17  # sequences per step, and texts generated together
MAX_BEAM = 1024  # hypotheses of a beam search
MAX_TOKENS = 10**9  # tokens of a generated text
MAX_WIDTH, MAX_HIDDEN, MAX_VOCABULARY, MAX_LENGTH = 2**16, 2**20, 2**22, 2**24

# --- runs ----------------------------------------------------------------------------------

MAX_THREADS, MAX_PROCESSES = 1024, 1024  # per machine
MAX_STEPS = 10**12  # also limits what is counted in evaluations or tokens
MAX_EPOCHS, MAX_MINUTES, MAX_SECONDS = 10**9, 10**9, 10**9
