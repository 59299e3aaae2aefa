/** Following a turn to its end: through broken connections, and through waits for a decision that may come from another window. */

import { Problem, send } from "../api";
import type { TurnEvent } from "../contracts";
import { eventsOf } from "../event-stream";
import { pause, visible, whileVisible } from "../presence";
import { fold, type Reply } from "./turn-fold";

const PAUSE_MS = 250;
const PAUSE_MS_MAX = 8000;

export interface Listener {
  changed(): void;
  /** The connection broke off; it is tried again. */
  broken(): void;
}

/** Reads until `Done`. `first`: the stream that began the turn, where it was begun here. Leaving stops nothing but the reading. */
export async function follow(reply: Reply, turnId: string | null, first: Response | null, signal: AbortSignal, listener: Listener): Promise<void> {
  let response = first;
  let rest = PAUSE_MS;
  const known = (): string => reply.turnId || turnId || "";
  const read = async (here: AbortSignal): Promise<void> => {
    response ??= await send(`/api/chat/turns/${known()}/events`, { headers: { "Last-Event-ID": String(reply.lastSeq) }, signal: here });
    for await (const events of eventsOf(response, here)) {
      if (signal.aborted) return;
      for (const event of events) fold(reply, JSON.parse(event.data) as TurnEvent);
      rest = PAUSE_MS;
      listener.changed();
    }
  };
  for (;;) {
    let hidden = false;
    try {
      await whileVisible(signal, () => (hidden = known() !== ""), read);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status > 0 && error.status < 500 && error.status !== 429) throw error;
      if (!hidden) listener.broken();
    }
    if (signal.aborted || reply.cited !== null) return;
    response = null;
    if (hidden) await visible(signal);
    // What waits for a decision is no broken connection: asked again at once, the stream stays open until something comes.
    else if (reply.status !== "awaiting_approval" || rest > PAUSE_MS) await pause(rest, signal);
    if (signal.aborted) return;
    rest = hidden ? PAUSE_MS : Math.min(2 * rest, PAUSE_MS_MAX);
  }
}
