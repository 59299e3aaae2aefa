/** Reading server-sent events from a `fetch`, whose POST and headers `EventSource` does not have. */

export interface ServerEvent { id: string; event: string; data: string }

/** Takes pieces of text as they come, gives whole events. Line ends may be CR, LF or both; a comment is nothing. */
export class EventParser {
  private rest = "";
  private id = "";
  private event = "";
  private data: string[] = [];

  push(text: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    const held = this.rest + text;
    // A CR at the very end may be the first half of CRLF.
    const end = held.endsWith("\r") ? held.length - 1 : held.length;
    const lines = held.slice(0, end).split(/\r\n|\r|\n/);
    this.rest = (lines.pop() ?? "") + held.slice(end);
    for (const line of lines) this.line(line, events);
    return events;
  }

  private line(line: string, events: ServerEvent[]): void {
    if (line === "") {
      if (this.data.length > 0) events.push({ id: this.id, event: this.event || "message", data: this.data.join("\n") });
      this.event = "";
      this.data = [];
      return;
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "id") this.id = value;
    else if (name === "event") this.event = value;
    else if (name === "data") this.data.push(value);
  }
}

/** The events of a response, several at a time as they arrived. Ends where the stream does, or with the signal. */
export async function* eventsOf(response: Response, signal: AbortSignal): AsyncGenerator<ServerEvent[]> {
  const reader = response.body!.getReader();
  const leave = (): void => void reader.cancel().catch(() => undefined);
  if (signal.aborted) leave();
  signal.addEventListener("abort", leave);
  const decoder = new TextDecoder();
  const parser = new EventParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const events = parser.push(decoder.decode(value, { stream: true }));
      if (events.length > 0) yield events;
    }
  } finally {
    signal.removeEventListener("abort", leave);
    await reader.cancel().catch(() => undefined);
  }
}
