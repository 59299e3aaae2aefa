/** Whether somebody can see this window. One that nobody sees gives its streams up: a browser opens six connections to one server, for all its windows. */

/** Resolves once the window can be seen, or `signal` is aborted. */
export function visible(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const look = (): void => {
      if (document.visibilityState !== "visible" && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      signal.removeEventListener("abort", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
    look();
  });
}

/** `work` with a signal that is aborted with `signal`, and when the window is hidden and `mayEnd`. */
export async function whileVisible<T>(signal: AbortSignal, mayEnd: () => boolean, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const here = new AbortController();
  const leave = (): void => here.abort();
  const look = (): void => {
    if (document.visibilityState === "hidden" && mayEnd()) leave();
  };
  if (signal.aborted) leave();
  look();
  signal.addEventListener("abort", leave);
  document.addEventListener("visibilitychange", look);
  try {
    return await work(here.signal);
  } finally {
    signal.removeEventListener("abort", leave);
    document.removeEventListener("visibilitychange", look);
  }
}

/** A pause that ends early with the signal, or when the network is there again. */
export function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      window.removeEventListener("online", end);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, milliseconds);
    window.addEventListener("online", end);
    signal.addEventListener("abort", end);
  });
}
