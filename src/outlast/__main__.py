"""`python -m outlast`: the same as the `outlast` command."""

from outlast.cli import main

if __name__ == "__main__":
    main()
