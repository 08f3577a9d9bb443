// What the server does now, from one stream for the whole page; its end is how the page knows that the server
// is gone.
import {events} from "./api.mjs";

// Until the page is looked at.
function shown(signal) {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", resolve, {once: true});
    signal?.addEventListener("abort", resolve, {once: true});
  });
}

// As events(), while the page is looked at: a hidden tab asks the server for nothing, and takes none of the
// few connections that a browser has to one server.
export async function* visibleEvents(path, {signal} = {}) {
  while (!signal?.aborted) {
    await shown(signal);
    const abort = new AbortController();
    const stop = () => abort.abort();
    const hide = () => document.hidden && stop();
    document.addEventListener("visibilitychange", hide);
    signal?.addEventListener("abort", stop);
    try {
      yield* events(path, {signal: abort.signal});
      return;
    } catch (error) {
      if (signal?.aborted || !abort.signal.aborted) throw error;
    } finally {
      document.removeEventListener("visibilitychange", hide);
      signal?.removeEventListener("abort", stop);
    }
  }
}

const listeners = new Set();
let last = null;

// Calls `listener` with each state of GET /quire/now. Returns what ends that.
export function onNow(listener) {
  listeners.add(listener);
  if (last) listener(last);
  return () => listeners.delete(listener);
}

// Runs for as long as the page; `connected(true | false)` at each change.
export async function watchServer(connected) {
  let open = null;
  const tell = (now) => {
    if (open !== now) connected(now);
    open = now;
  };
  for (;;) {
    try {
      for await (const now of visibleEvents("/quire/now")) {
        tell(true);
        last = {...now, recent: now.recent ?? last?.recent ?? []};  // left out where they are as before
        for (const listener of listeners) listener(last);
      }
    } catch {
      tell(false);
    }
    await new Promise((resolve) => { setTimeout(resolve, 1000); });
  }
}
