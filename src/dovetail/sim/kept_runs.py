"""Saves the runs of a sweep in a folder, so that a stopped sweep can resume.

A run is a pure function of its task and of the code, so its file is named after a digest of both: other values, another
scenario or another version of Dovetail never find it. Files are written whole or not at all; one that can't be read is
run again. Sits in sim, above `engines`.
"""

import gzip
import hashlib
import os
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail.api.findings import InputError
from dovetail.sim.compare import Progress, Task
from dovetail.sim.engines import Note, code_digest, run_tasks
from dovetail.sim.ledger import Result

_SUFFIX: Final = ".run.gz"
_NUMBERS: Final = ("b", "l", "d")


class KeptRuns:
    """The folder: one file for each run that ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--keep {folder}: {error.strerror or error}; name a folder that can be written") from None

    def load(self, task: Task) -> Result | None:
        """Return the result of a task that ran before, or None."""
        try:
            return _decode(gzip.decompress(self._path(task).read_bytes()))
        except (OSError, EOFError, ValueError, msgspec.MsgspecError):
            return None  # not there, or cut off in the middle: it runs again

    def save(self, task: Task, result: Result) -> None:
        """Write a result, so that it is there whole or not at all."""
        path = self._path(task)
        partial = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            partial.write_bytes(gzip.compress(_encode(result), 5, mtime=0))
            partial.replace(path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise InputError(f"--keep {self.folder}: {error.strerror or error}; the sweep was stopped") from None

    def _path(self, task: Task) -> Path:
        return self.folder / f"{task_digest(task)}{_SUFFIX}"


def task_digest(task: Task) -> str:
    """Return a digest of all that a run depends on."""
    encoded = msgspec.json.encode((code_digest(), *task), enc_hook=repr, order="deterministic")
    return hashlib.sha256(encoded).hexdigest()[:32]


def run_kept(
    tasks: Sequence[Task], engine: str, folder: Path, progress: Progress | None = None, note: Note | None = None
) -> list[Result]:
    """Run the tasks that are not in the folder and keep each as it ends; return all results, in their order."""
    kept = KeptRuns(folder)
    known = {place: found for place, task in enumerate(tasks) if (found := kept.load(task)) is not None}
    missing = [place for place in range(len(tasks)) if place not in known]
    if known and note is not None:
        note(f"{len(known)} of {len(tasks)} runs are in {folder} already; {len(missing)} are left")

    def done(at: int, result: Result) -> None:
        kept.save(tasks[missing[at]], result)

    def share(part: float) -> None:
        if progress is not None:
            progress((len(known) + part * len(missing)) / len(tasks))

    if missing:
        results = run_tasks([tasks[place] for place in missing], engine, share, done=done, note=note)
        known |= dict(zip(missing, results, strict=True))
    return [known[place] for place in range(len(tasks))]


def _encode(result: Result) -> bytes:
    return msgspec.json.encode(result, enc_hook=_as_list)


def _decode(encoded: bytes) -> Result:
    return msgspec.json.decode(encoded, type=Result, dec_hook=_as_array)


def _as_list(item: Any) -> Any:
    if isinstance(item, array):
        return [item.typecode, item.tolist()]
    raise TypeError(f"a result holds a {type(item).__name__}")


def _as_array(kind: type, item: Any) -> Any:
    if kind is array and item[0] in _NUMBERS:
        return array(*item)
    raise ValueError(f"a result can't be read back: {kind}")
