"""The folder of a recording: hourly files of lines, a manifest, and what is removed when it grows old or large.

Every file can be read alone. A file is written through a compressor that is flushed often, so that a crash loses at
most what came since the last flush. A file that was closed in order ends with a line `end`; the manifest is replaced
as a whole. Doesn't know what the lines mean, nor what time it is.
"""

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final

from dovetail.recordings.lines import ENCODER, VERSION, EndLine, Line

SUFFIX: Final = ".ndjson.gz"
MANIFEST: Final = "manifest.json"
_GZIP: Final = 31  # zlib's window bits for a gzip header and trailer
_NAME: Final = "%Y%m%dT%H%M%SZ"


@dataclass(slots=True)
class HourFile:
    """One file that is being written."""

    path: Path
    begins: datetime
    packed_bytes: int = 0
    _file: BinaryIO = field(init=False)
    _packer: "zlib._Compress" = field(init=False)

    def __post_init__(self) -> None:
        self._file = self.path.open("xb")
        self._packer = zlib.compressobj(6, zlib.DEFLATED, _GZIP)

    def write(self, lines: Iterable[Line]) -> None:
        """Add lines; they reach the disk with the next `flush`."""
        for line in lines:
            packed = self._packer.compress(ENCODER.encode(line) + b"\n")
            if packed:
                self._put(packed)

    def flush(self) -> None:
        """Write out everything so far, so that a crash can't lose it."""
        self._put(self._packer.flush(zlib.Z_SYNC_FLUSH))
        self._file.flush()

    def close(self, at: datetime) -> None:
        """Finish the file with a line that says so."""
        self.write([EndLine(at=round((at - self.begins).total_seconds(), 1))])
        self._put(self._packer.flush(zlib.Z_FINISH))
        self._file.close()

    def _put(self, packed: bytes) -> None:
        self._file.write(packed)
        self.packed_bytes += len(packed)

    def abandon(self) -> None:
        """Close the file as it is, e.g. after a write has failed; a reader sees that it was cut off."""
        try:
            self._file.close()
        except OSError:
            return


def new_file(folder: Path, begins: datetime) -> HourFile:
    """Create the file of a stretch that begins now; two that begin in one second get different names."""
    stem = begins.strftime(_NAME)
    for number in range(1, 1000):
        path = folder / (f"{stem}{SUFFIX}" if number == 1 else f"{stem}-{number}{SUFFIX}")
        if not path.exists():
            return HourFile(path, begins)
    raise FileExistsError(f"{folder}: a thousand files begin at {stem}")


def files_of(folder: Path) -> list[Path]:
    """Return the files of a recording, oldest first."""
    return sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: (path.name.split("-")[0].split(".")[0], path.name))


def begins_of(path: Path) -> datetime | None:
    """Return when a file begins, by its name; None if it has another name."""
    try:
        return datetime.strptime(path.name.removesuffix(SUFFIX).split("-")[0], _NAME).replace(tzinfo=UTC)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long, and how much, a folder keeps."""

    keep: timedelta | None = None
    bytes_max: int | None = None


def prune(folder: Path, now: datetime, limits: Limits, writing: Path | None = None) -> list[Path]:
    """Remove files that are too old, then the oldest until the rest is small enough; never the one being written."""
    removed: list[Path] = []
    files = [path for path in files_of(folder) if path != writing]
    if limits.keep is not None:
        for path in list(files):
            begins = begins_of(path)
            if begins is not None and begins + timedelta(hours=1) < now - limits.keep:
                files.remove(path)
                removed.append(path)
    if limits.bytes_max is not None:
        sizes = {path: path.stat().st_size for path in files}
        total = sum(sizes.values()) + (writing.stat().st_size if writing is not None else 0)
        while files and total > limits.bytes_max:
            total -= sizes[files[0]]
            removed.append(files.pop(0))
    for path in removed:
        path.unlink(missing_ok=True)
    return removed


def write_manifest(folder: Path, cluster: str, catalogue: str, missing: Iterable[str], recorder: str) -> None:
    """Replace the manifest: which cluster, which format, what is missing, which files."""
    tree = {
        "version": VERSION,
        "cluster": cluster,
        "catalogue": catalogue,
        "recorder": recorder,
        "missing": sorted(missing),
        "files": [path.name for path in files_of(folder)],
    }
    new = folder / f".{MANIFEST}.new"
    new.write_text(json.dumps(tree, indent=2) + "\n")
    new.replace(folder / MANIFEST)
