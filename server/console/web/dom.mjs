// Elements without HTML strings: what comes from models and users is only ever text.

// h("button", {class: "primary", onclick: f}, "Send") - attributes, handlers (on...) and children (elements, text, null).
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
}

export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

export function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) {
    count /= 1000;
    ++unit;
  }
  return `${count < 10 && unit > 0 ? count.toFixed(1) : Math.round(count)} ${units[unit]}`;
}

export function milliseconds(time) {
  if (time === undefined || time === null) return "";
  if (time < 1000) return `${Math.round(time)} ms`;
  if (time < 60000) return `${(time / 1000).toFixed(1)} s`;
  return `${Math.floor(time / 60000)} min ${Math.round(time % 60000 / 1000)} s`;
}

export function number(value) {
  return value === undefined || value === null ? "" : value.toLocaleString("en-US");
}

// A short message that fades; errors stay until they are dismissed.
export function notify(text, kind = "info") {
  const close = h("button", {type: "button", "aria-label": "Dismiss"}, "×");
  const note = h("div", {class: `note ${kind}`, role: kind === "error" ? "alert" : "status"}, h("span", {}, text), close);
  close.addEventListener("click", () => note.remove());
  document.body.append(note);
  if (kind !== "error") setTimeout(() => note.remove(), 4000);
}
