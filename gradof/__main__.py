"""`python -m gradof`: the command line."""

from gradof.cli.main import main

main()
