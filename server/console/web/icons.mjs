// Small pictures of buttons, drawn for a grid of 24, and buttons that have one. What a button does is its
// text, which is hidden from the eye only.
import {h, svg} from "./dom.mjs";

const PATHS = {
  menu: "M4 7h16M4 12h16M4 17h16",
  settings: "M4 8h9M17 8h3M4 16h3M11 16h9M13 8a2 2 0 1 0 4 0a2 2 0 1 0-4 0M7 16a2 2 0 1 0 4 0a2 2 0 1 0-4 0",
  add: "M12 5v14M5 12h14",
  send: "M12 19V6M6 11.5l6-6 6 6",
  stop: "M7 7h10v10H7z",
  down: "M12 5v13M6 12.5l6 6 6-6",
  edit: "M5 19l1-4L16.5 4.5l3 3L9 18z",
  again: "M19 12a7 7 0 1 1-2.2-5.1M19 4v4.5h-4.5",
  go: "M9 6l6 6-6 6M4 6l6 6-6 6",
  copy: "M9 9h10v11H9zM15 9V4H5v11h4",
  done: "M5 12.5l4.5 4.5L19 7.5",
  remove: "M5 7h14M10 7V4.5h4V7M7 7l.8 12.5h8.4L17 7M10 11v5M14 11v5",
  close: "M6 6l12 12M18 6L6 18",
  left: "M14 7l-5 5 5 5",
  right: "M10 7l5 5-5 5",
  attach: "M18.5 11.5l-6.6 6.6a4 4 0 0 1-5.7-5.7l7-7a2.7 2.7 0 0 1 3.8 3.8l-6.9 6.9a1.3 1.3 0 0 1-1.9-1.9l6-6",
  file: "M7 3.5h7l4 4v13H7zM14 3.5v4h4",
  search: "M10.5 5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M15 15l4.5 4.5",
};

export const icon = (name) => svg("svg", {class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true"}, svg("path", {d: PATHS[name]}));

export function iconButton(name, label, attributes = {}) {
  return h("button", {type: "button", title: label, ...attributes, class: `icon-button ${attributes.class ?? ""}`.trim()},
    icon(name), h("span", {class: "hidden"}, label));
}

// Copies what `text` returns, and shows for a moment that it did.
export function copyButton(text) {
  const button = iconButton("copy", "Copy", {onclick: async () => {
    await navigator.clipboard.writeText(text());
    button.firstChild.replaceWith(icon("done"));
    setTimeout(() => button.firstChild.replaceWith(icon("copy")), 1500);
  }});
  return button;
}
