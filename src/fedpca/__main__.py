"""`python -m fedpca` is the `fedpca` command."""

from fedpca.cli.main import main

main()
