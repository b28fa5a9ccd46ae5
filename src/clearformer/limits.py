"""The largest things that are believed of a file, a request or a setting from anyone.

All limits stand here, and the error that applies one names it. They are far above what is
published, and far below what would take a machine's memory or hours of its time.
"""

# --- files ---------------------------------------------------------------------------------

LARGEST_JSON = 64 * 2**20  # bytes of a JSON file; the largest tokenizers have some 20 million
LARGEST_RECORDS = 2**30  # bytes of metrics.jsonl or samples.jsonl; a step has some 200
MOST_RECORDS = 5_000_000  # lines of one of them
LONGEST_HEADER = 100 * 2**20  # bytes of a safetensors header, as in the format's own readers
MOST_FILES = 1000  # shards of one checkpoint
LARGEST_PICKLE = 50 * 2**30  # bytes of a .bin or .pt file

# --- archives ------------------------------------------------------------------------------

MEMBERS = 200_000  # files in an archive
RATIO = 200  # bytes unpacked for one that is packed
GRACE = 16 * 2**20  # bytes that may come out before the ratio is asked for
LARGEST_ARCHIVE = 4 * 2**30  # bytes of all files of an archive

# --- models --------------------------------------------------------------------------------

MOST_LAYERS, MOST_HEADS, MOST_CLASSES, MOST_SEGMENTS = 1000, 1024, 100_000, 1024
MOST_BATCH = 2**17  # sequences of a step, and texts that are written together
MOST_WIDTH, MOST_HIDDEN, MOST_VOCABULARY, MOST_LENGTH = 2**16, 2**20, 2**22, 2**24

# --- runs ----------------------------------------------------------------------------------

MOST_THREADS, MOST_PROCESSES = 1024, 1024  # of one machine; a smaller machine has fewer
MOST_STEPS = 10**12  # also of what is counted in steps, evaluations or tokens
MOST_EPOCHS, MOST_MINUTES, MOST_SECONDS = 10**9, 10**9, 10**9
