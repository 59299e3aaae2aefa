"""Text that every database and wire can carry, from models that send anything."""


class WholeCharacters:
    """Text that comes in pieces, made of whole characters: the halves of a surrogate pair may come in two pieces."""

    def __init__(self) -> None:
        self._half = ""

    def of(self, piece: str) -> str:
        """What can be passed on of `piece`, together with a half that was held back."""
        if not piece or (not self._half and piece.isascii() and "\0" not in piece):
            return piece
        text, self._half = self._half + piece, ""
        if "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return storable(text)


def storable(text: str) -> str:
    """The text with what no database or wire can carry (NUL, half a surrogate pair) replaced by the replacement character."""
    if text.isascii():
        return text.replace("\0", "\ufffd")
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", "\ufffd")
