"""Text that came from a cluster, made safe to show.

Names, labels and annotations are untrusted. Characters that could break a line, move the cursor or change the reading
direction are shown as visible escapes; nothing is dropped silently. Sits at the bottom of the model.
"""

import unicodedata

_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def safe(text: str, length_max: int = 300) -> str:
    r"""Return the text with control, format and separator characters as `\u{..}`, cut to a length that fits a line."""
    if not text.isascii() or not text.isprintable():
        text = "".join(
            f"\\u{{{ord(char):x}}}" if unicodedata.category(char) in _UNSAFE_CATEGORIES else char for char in text
        )
    if len(text) > length_max:
        text = text[: length_max - 1] + "…"
    return text
