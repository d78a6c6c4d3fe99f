"""The files of an input: those that are named, and those in the folders that are named.

Reads names only. Sits in api, below decode.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from dovetail.api.findings import InputError

MANIFEST_SUFFIXES: Final = (".yaml", ".yml", ".json")
CAPTURE_SUFFIXES: Final = (*MANIFEST_SUFFIXES, *(f"{suffix}.gz" for suffix in MANIFEST_SUFFIXES))


class InputFile(NamedTuple):
    """A file to read, and whether it was found in a folder rather than named."""

    path: str
    in_folder: bool


def files_of(paths: Sequence[Path | str], suffixes: tuple[str, ...] = CAPTURE_SUFFIXES) -> Iterator[InputFile]:
    """Yield the files, and those below folders by name; raise InputError for a folder without any."""
    for given in map(str, paths):
        if not is_folder(given):
            yield InputFile(given, in_folder=False)
            continue
        found = sorted(str(file) for file in Path(given).rglob("*") if file.name.endswith(suffixes) and file.is_file())
        if not found:
            *most, last = (f"*{suffix}" for suffix in suffixes)
            raise InputError(f"{given}: the folder holds no {', '.join(most)} or {last}")
        yield from (InputFile(file, in_folder=True) for file in found)


def is_folder(path: Path | str) -> bool:
    """Return whether a path of an input is a folder; "-" is standard input."""
    try:
        return str(path) not in ("", "-") and Path(path).is_dir()
    except (OSError, ValueError):  # a name that no file can have; reading it says so
        return False
