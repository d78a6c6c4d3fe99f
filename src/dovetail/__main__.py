"""`python -m dovetail`: the same as the command `dovetail`."""

from dovetail.cli.main import entry

if __name__ == "__main__":
    entry()
