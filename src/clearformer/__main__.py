"""`python -m clearformer` is `clearformer`."""

from clearformer.cli.main import main

main()
