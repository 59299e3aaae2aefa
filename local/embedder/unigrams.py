"""Cuts texts into the pieces that the model knows: the likeliest sequence of pieces, as SentencePiece's unigram model has it."""

import re

from local.embedder.e5_file import Pieces

# SentencePiece's mark of a word's beginning.
_SPACE = "\u2581"
_SPACES = re.compile(" {2,}")
# What a character that no piece covers costs, beside the rarest piece.
_UNKNOWN_PENALTY = 10.0
_IMPOSSIBLE = float("-inf")


class Unigrams:
    """Text to numbers of pieces."""

    def __init__(self, pieces: Pieces) -> None:
        self._numbers = {text.decode("utf-8"): number for number, text in enumerate(pieces.texts) if text and number != pieces.unknown}
        self._scores = pieces.scores
        self._replaced = str.maketrans(pieces.replaced)
        self._unknown = pieces.unknown
        self._unknown_score = min(pieces.scores) - _UNKNOWN_PENALTY
        # How long a piece can be that begins with a certain character: most are short.
        self._longest: dict[str, int] = {}
        for text in self._numbers:
            self._longest[text[0]] = max(len(text), self._longest.get(text[0], 0))

    def numbers(self, text: str) -> list[int]:
        """The pieces of a text in order, without marks of its ends."""
        normal = _SPACES.sub(" ", text.translate(self._replaced))
        if not normal.startswith(" "):
            normal = f" {normal}"
        return self._likeliest(normal.replace(" ", _SPACE))

    def _likeliest(self, text: str) -> list[int]:
        """Viterbi's algorithm: for each place the best way to it, by its last piece."""
        numbers, scores = self._numbers, self._scores
        best = [0.0] + [_IMPOSSIBLE] * len(text)
        last: list[tuple[int, int]] = [(0, 0)] * (len(text) + 1)
        for start, character in enumerate(text):
            so_far = best[start]
            for end in range(start + 1, min(start + self._longest.get(character, 0), len(text)) + 1):
                number = numbers.get(text[start:end])
                if number is not None and (score := so_far + scores[number]) > best[end]:
                    best[end], last[end] = score, (number, start)
            if (score := so_far + self._unknown_score) > best[start + 1]:
                best[start + 1], last[start + 1] = score, (self._unknown, start)
        found = []
        at = len(text)
        while at:
            number, at = last[at]
            found.append(number)
        found.reverse()
        return found
