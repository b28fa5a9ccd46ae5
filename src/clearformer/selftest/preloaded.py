"""What a command needs, imported before it is forked: see nursery.py."""

import clearformer.explore.figures
import clearformer.generate.stream
import clearformer.generate.writer
import clearformer.hub.importing
import clearformer.train.card
import clearformer.train.run  # noqa: F401
from clearformer.selftest import inside

inside.run(["train", "--help"])  # the parser reads its own sources once, and remembers
