// What the server does now, from one stream for the whole page; its end is how the page knows that the server is gone.
import {events} from "./api.mjs";

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
      for await (const now of events("/quire/now")) {
        tell(true);
        last = now;
        for (const listener of listeners) listener(now);
      }
    } catch {
      tell(false);
    }
    await new Promise((resolve) => { setTimeout(resolve, 1000); });
  }
}
