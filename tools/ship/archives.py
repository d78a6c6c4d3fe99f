"""Reproducible archives: the same files give the same bytes, whoever builds them and when."""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

Files = Mapping[str, tuple[bytes, int]]


def tar(files: Files, folders: Mapping[str, int] | None = None, links: Mapping[str, str] | None = None) -> bytes:
    """Return an uncompressed archive of files (content, mode), folders (mode) and symbolic links, all sorted by name."""
    entries: list[tuple[str, str]] = [(name, "file") for name in files]
    entries += [(name, "folder") for name in folders or {}] + [(name, "link") for name in links or {}]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, kind in sorted(entries):
            info = tarfile.TarInfo(name)
            info.mtime = 0
            if kind == "file":
                data, info.mode = files[name]
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
                continue
            info.type = tarfile.DIRTYPE if kind == "folder" else tarfile.SYMTYPE
            info.mode = (folders or {}).get(name, 0o777)
            info.linkname = (links or {}).get(name, "")
            archive.addfile(info)
    return buffer.getvalue()


def archive(target: Path, files: Files) -> str:
    """Write a .tar.gz and return its SHA-256."""
    target.write_bytes(gzip.compress(tar(files), compresslevel=6, mtime=0))
    return digest(target.read_bytes())


def tree(folder: Path, prefix: str = "") -> Iterator[tuple[str, tuple[bytes, int]]]:
    """Yield the files of a folder by their path in an archive; executable ones stay executable."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.suffix != ".pyc":
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            yield f"{prefix}{path.relative_to(folder)}", (path.read_bytes(), mode)


def digest(data: bytes) -> str:
    """Return the SHA-256 in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()
