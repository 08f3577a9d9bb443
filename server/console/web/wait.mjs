// What a wait is for, in the words of the terminal's last line.
import {number} from "./dom.mjs";

// A name without the tag that every model has.
export const shortName = (name) => name.replace(/:latest$/, "");

const percentOf = (fraction) => `${Math.round(100 * fraction)}%`;

export function timeLeft(seconds) {
  const whole = Math.ceil(seconds);
  if (whole < 60) return `${whole} s left`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s left`;
  return `${Math.floor(whole / 3600)} h ${Math.floor(whole / 60) % 60} min left`;
}

// {text, fraction} before the model has the prompt; `now` is the server's state, or null. Names are with
// their tags there.
export function queueWait(model, now) {
  const loading = now?.loading.find(({name}) => shortName(name) === shortName(model));
  if (!loading) return {phase: "waiting", text: `Waiting for ${shortName(model)}`, fraction: null};
  const stage = loading.stage ? `, ${loading.stage}` : "";
  return {phase: "loading", text: `Loading ${shortName(model)} (${percentOf(loading.fraction)}${stage})`, fraction: loading.fraction};
}

// The same while the prompt is computed: `progress` is the server's prompt_progress. Without rate and time
// while nothing is known of them.
export function prefillWait({total, cache, processed, time_ms: time}) {
  const fraction = total > 0 ? processed / total : 1;
  const parts = [`Prefilling ${number(processed)} of ${number(total)} tokens (${percentOf(fraction)})`];
  const computed = processed - cache;
  if (computed > 0 && time > 0) {
    const rate = computed * 1000 / time;
    parts.push(`${rate.toFixed(rate < 10 ? 1 : 0)} tokens/s`, timeLeft(Math.max(total - processed, 0) / rate));
  }
  return {phase: "prefilling", text: parts.join(", "), fraction};
}
