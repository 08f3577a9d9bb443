// Elements without HTML strings: what comes from models and users is only ever text.

// h("button", {class: "primary", onclick: f}, "Send") - attributes, handlers (on...) and children (elements,
// text, null).
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

// The same for a picture.
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, String(value));
  }
  append(element, children);
  return element;
}

// A bar of [name, value] parts; what is left of `total` stays empty.
export function stack(parts, total) {
  const shown = parts.filter(([, value]) => value > 0);
  const label = shown.map(([name, value]) => `${name} ${bytes(value)}`).join(", ");
  const whole = Math.max(total, shown.reduce((sum, [, value]) => sum + value, 0), 1);
  let x = 0;
  const rects = shown.map(([name, value]) => {
    const width = 100 * value / whole;
    x += width;
    return svg("rect", {x: x - width, y: 0, width, height: 4, class: `part-${name.toLowerCase().replaceAll(" ", "-")}`});
  });
  return h("div", {}, svg("svg", {class: "timeline", viewBox: "0 0 100 4", preserveAspectRatio: "none", role: "img", "aria-label": label || "empty"}, rects),
    h("p", {class: "figures legend"}, shown.map(([name, value]) => h("span", {class: `key key-${name.toLowerCase().replaceAll(" ", "-")}`}, `${name} ${bytes(value)}`))));
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
  if (time < 9.95) return `${time.toFixed(1)} ms`;
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
