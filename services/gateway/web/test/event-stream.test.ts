import assert from "node:assert/strict";
import test from "node:test";
import { EventParser } from "../src/event-stream";

test("events are whole wherever the stream was cut", () => {
  const stream = ": hello\r\n\r\nid: 1\r\nevent: TextDelta\r\ndata: {\"text\":\"a\"}\r\n\r\nid: 2\nevent: Done\ndata: x\ndata: y\n\n";
  for (let cut = 0; cut <= stream.length; cut += 1) {
    const parser = new EventParser();
    const events = [...parser.push(stream.slice(0, cut)), ...parser.push(stream.slice(cut))];
    assert.deepEqual(events, [{ id: "1", event: "TextDelta", data: '{"text":"a"}' }, { id: "2", event: "Done", data: "x\ny" }], `cut at ${cut}`);
  }
});

test("a comment alone is no event", () => {
  assert.deepEqual(new EventParser().push(": still there\n\n"), []);
});
