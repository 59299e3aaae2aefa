"""The form in which what a person types is compared with titles, paths and words: neither case nor width, composition or accents matter."""

import re
import unicodedata

_COMBINING = re.compile("[\u0300-\u036f]+")


def search_key(text: str) -> str:
    """One line; `Ｃａｆé  Ⅳ` is `cafe iv`. Marks that make another letter in scripts other than Latin, Greek and Cyrillic stay."""
    if text.isascii():
        return " ".join(text.casefold().split())
    decomposed = _COMBINING.sub("", unicodedata.normalize("NFKD", text))
    return " ".join(unicodedata.normalize("NFKC", decomposed.casefold()).split())
