"""`python -m fedpca` is the `fedpca` command."""

from fedpca.cli import main

main()
