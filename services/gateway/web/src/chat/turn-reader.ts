/** Following a turn to its end: through broken connections, and through waits for a decision that may come from another window. */

import { Problem, send } from "../api";
import type { TurnEvent } from "../contracts";
import { eventsOf } from "../event-stream";
import { fold, type Reply } from "./turn-fold";

const PAUSE_MS_MAX = 8000;

export interface Listener {
  changed(): void;
  /** The connection broke off; it is tried again. */
  broken(): void;
}

/** Reads until `Done`. `first`: the stream that began the turn, where it was begun here. Leaving stops nothing but the reading. */
export async function follow(reply: Reply, turnId: string | null, first: Response | null, signal: AbortSignal, listener: Listener): Promise<void> {
  let response = first;
  let pause = 250;
  for (;;) {
    try {
      response ??= await send(`/api/chat/turns/${reply.turnId || turnId}/events`, { headers: { "Last-Event-ID": String(reply.lastSeq) }, signal });
      for await (const events of eventsOf(response)) {
        if (signal.aborted) return;
        for (const event of events) fold(reply, JSON.parse(event.data) as TurnEvent);
        pause = 250;
        listener.changed();
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && error.status > 0 && error.status < 500 && error.status !== 429) throw error;
      listener.broken();
    }
    if (signal.aborted || reply.cited !== null) return;
    response = null;
    // What waits for a decision is no broken connection: asked again at once, the stream stays open until something comes.
    if (reply.status !== "awaiting_approval" || pause > 250) await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(2 * pause, PAUSE_MS_MAX);
  }
}
