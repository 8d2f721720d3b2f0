"""`python -m kinprint` is the command `kinprint`."""

from kinprint.cli.main import run

run()
