"""Text that came from a cluster, made safe to show.

Names, labels and annotations are untrusted. Characters that could break a line, move the cursor or change the reading
direction are shown as visible escapes; nothing is dropped silently. Sits at the bottom of the model.
"""

import re
import unicodedata
from collections.abc import Iterable

_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known name that is spelled most like this one; None if none is alike.

    Of equals, the one with the same numbers comes first (`node-0006` means `node-00006`, not `node-00096`), then by
    name.
    """
    import difflib  # only mistakes need it

    matcher = difflib.SequenceMatcher(b=name)
    found = []
    for other in known:
        matcher.set_seq1(other)
        if matcher.real_quick_ratio() >= cutoff and matcher.quick_ratio() >= cutoff:
            ratio = matcher.ratio()
            if ratio >= cutoff:
                found.append((-ratio, _numbers(other) != _numbers(name), other))
    return min(found)[2] if found else None


def _numbers(name: str) -> list[int]:
    return [int(digits) for digits in re.findall("[0-9]{1,18}", name)]


def safe(text: str, length_max: int = 300) -> str:
    r"""Return the text with control, format and separator characters as `\u{..}`, cut to a length that fits a line."""
    if not text.isascii() or not text.isprintable():
        text = "".join(
            f"\\u{{{ord(char):x}}}" if unicodedata.category(char) in _UNSAFE_CATEGORIES else char for char in text
        )
    if len(text) > length_max:
        text = text[: length_max - 1] + "…"
    return text
