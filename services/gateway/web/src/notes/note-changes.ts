/** The changes of a workspace's notes by anybody, other programs included, for as long as somebody looks. */

import { Problem, send } from "../api";
import type { NoteChanged } from "../contracts";
import { eventsOf } from "../event-stream";
import { pause, visible, whileVisible } from "../presence";

const PAUSE_MS = 250;
const PAUSE_MS_MAX = 8000;

export interface ChangeListener {
  /** Changes are heard from now on; what changed before is not told. */
  listening(): void;
  heard(change: NoteChanged): void;
}

/** Listens until the signal, through whatever breaks off: a browser's own `EventSource` gives up at the first refusal. */
export async function follow(workspace: string, signal: AbortSignal, listener: ChangeListener): Promise<void> {
  let rest = PAUSE_MS;
  const read = async (here: AbortSignal): Promise<void> => {
    const response = await send(`/api/workspaces/${workspace}/events`, { signal: here });
    rest = PAUSE_MS;
    listener.listening();
    for await (const events of eventsOf(response, here)) for (const { event, data } of events) if (event === "NoteChanged") listener.heard(JSON.parse(data) as NoteChanged);
  };
  while (!signal.aborted) {
    await visible(signal);
    try {
      await whileVisible(signal, () => true, read);
    } catch (error) {
      if (error instanceof Problem && (error.status === 401 || error.status === 404)) return;
    }
    if (document.visibilityState === "visible") await pause(rest, signal);
    rest = Math.min(2 * rest, PAUSE_MS_MAX);
  }
}
