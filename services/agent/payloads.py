"""The bytes of a server-sent stream, split into `data` payloads. Pure; no I/O."""

import codecs

LINE_CHARACTERS_MAX = 16 * 1024 * 1024


class MalformedStream(Exception):
    """What the provider sent cannot be read as a completion; the message says why, without quoting it."""


class PayloadReader:
    """Comments, other fields, line-end styles and empty payloads fall away here. Each `data` line is a payload of its own: some servers
    leave out the blank line between two events, and none spreads JSON over several lines.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("strict")
        # The line that has not ended yet, in pieces: a long one comes in many reads.
        self._pieces: list[str] = []
        self._characters = 0
        self._after_cr = False

    def feed(self, data: bytes) -> list[str]:
        """The payloads that are complete with these bytes, which may end anywhere, even inside a character.

        Raises:
            MalformedStream: not UTF-8, or a line without end.
        """
        try:
            text = self._decoder.decode(data)
        except UnicodeDecodeError:
            raise MalformedStream("the stream is not UTF-8") from None
        if self._after_cr and text:
            # A CR at the end of the last read has ended its line; LF now is its second half.
            text = text.removeprefix("\n")
            self._after_cr = False
        self._after_cr = self._after_cr or text.endswith("\r")
        first, *others = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._pieces.append(first)
        self._characters += len(first)
        lines = []
        if others:
            lines = ["".join(self._pieces), *others[:-1]]
            self._pieces, self._characters = [others[-1]], len(others[-1])
        if self._characters > LINE_CHARACTERS_MAX or any(len(line) > LINE_CHARACTERS_MAX for line in lines):
            raise MalformedStream("a line of the stream is too long")
        return [payload for line in lines if (payload := _payload(line))]

    def close(self) -> list[str]:
        """What a stream without a final line end still holds."""
        payload = _payload("".join(self._pieces))
        self._pieces = []
        return [payload] if payload else []


def _payload(line: str) -> str:
    payload = line[5:].removeprefix(" ") if line.startswith("data:") else ""
    return "" if payload.isspace() else payload
