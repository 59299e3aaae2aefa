"""A model provider that costs as little as possible: 64 chunks an answer, at once or at 50 a second. Run in a process of its own.

`python -m bench.upstream PORT`; the pace is chosen by the model's name, `unpaced` or `paced`.
"""

import asyncio
import json
import sys

import uvloop

CHUNKS = 64
PAUSE_SECONDS = 0.02
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _frame(delta: dict[str, str], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1790000000, "model": "m", "choices": [choice]}
    data = b"data: " + json.dumps(body).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


FRAMES = [_frame({"content": f"word{number} "}) for number in range(CHUNKS)]
USAGE = json.dumps({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": CHUNKS, "total_tokens": 10 + CHUNKS}}).encode()
_tail_data = b"data: " + USAGE + b"\n\ndata: [DONE]\n\n"
TAIL = _frame({}, "stop") + b"%x\r\n%b\r\n" % (len(_tail_data), _tail_data) + b"0\r\n\r\n"


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
            body = await reader.readexactly(length)
            writer.write(HEAD)
            for frame in FRAMES:
                writer.write(frame)
                if b'"paced"' in body:
                    await asyncio.sleep(PAUSE_SECONDS)
            writer.write(TAIL)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main(port: int) -> None:
    """Serve until killed."""
    server = await asyncio.start_server(_serve, "127.0.0.1", port, backlog=512)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
