// The prefix tree as a picture: each node a box as wide as its tokens are many (on a logarithmic scale),
// right of its parent; a parent is as high as its children together.
import {bytes, number, svg} from "./dom.mjs";

const ROW = 40;
const GAP = 3;
const LABEL_WIDTH = 7;  // of a character, about

const widthOf = (node) => 110 + 40 * Math.log2(1 + (node.to - node.from) / 16);
const bytesOf = (node) => node.kv_bytes + node.window_bytes + node.state_bytes;

// {x, y, width, height} of every node, by id, and the size of the whole.
export function layOut(nodes) {
  const children = new Map();
  for (const node of nodes) {
    if (!children.has(node.parent)) children.set(node.parent, []);
    children.get(node.parent).push(node);
  }
  const places = new Map();
  let width = 0;
  let row = 0;
  // Without recursion: a conversation of many turns is a deep tree.
  const todo = (children.get(0) ?? []).toReversed().map((node) => ({node, x: 0}));
  const order = [];
  while (todo.length > 0) {
    const {node, x} = todo.pop();
    const below = children.get(node.id) ?? [];
    const place = {x, y: row * ROW, width: widthOf(node), height: ROW, node, below};
    places.set(node.id, place);
    order.push(place);
    width = Math.max(width, x + place.width);
    if (below.length === 0) ++row;
    for (const child of below.toReversed()) todo.push({node: child, x: x + place.width});
  }
  for (const place of order.toReversed()) {
    if (place.below.length > 0) place.height = place.below.reduce((sum, child) => sum + places.get(child.id).height, 0);
  }
  return {places, width, height: row * ROW};
}

// What happened between two states of a tree: {kind, node, at}, kind "added", "split", "merged", "evicted" or
// "used".
export function changesBetween(before, after) {
  const changes = [];
  const old = new Map(before.map((node) => [node.id, node]));
  const now = new Map(after.map((node) => [node.id, node]));
  for (const node of after) {
    const was = old.get(node.id);
    if (!was) {
      const isUpperHalf = after.some((other) => other.parent === node.id && old.has(other.id) && old.get(other.id).from < other.from);
      changes.push(isUpperHalf ? {kind: "split", node, at: node.to} : {kind: "added", node});
    } else if (node.from < was.from) {
      changes.push({kind: "merged", node, at: was.from});
    } else if (node.hits > was.hits) {
      changes.push({kind: "used", node});
    }
  }
  const wasBelow = (node, id) => {
    for (let each = node; each; each = old.get(each.parent)) {
      if (each.parent === id) return true;
    }
    return false;
  };
  for (const node of before) {
    if (now.has(node.id)) continue;
    // A node that merged lives on in the one that was below it.
    const heir = before.some((other) => now.has(other.id) && now.get(other.id).from <= node.from && wasBelow(other, node.id));
    if (!heir) changes.push({kind: "evicted", node});
  }
  return changes;
}

export function describe(node) {
  return [`tokens ${number(node.from)} to ${number(node.to)}`, bytes(bytesOf(node)), node.marked ? "marked restore point" : node.restore_point && "restore point",
    node.in_use > 0 && `${node.in_use} running here`, `${number(node.hits)} hits`].filter(Boolean).join(", ");
}

// On one line, without a template's markers where there is other text.
export function brief(text) {
  const line = (marked) => marked.replace(/\s+/g, " ").trim();
  return line(text.replace(/<\|[^|>]*\|>/g, " ")) || line(text);
}

const cut = (text, width) => {
  const room = Math.max(0, Math.floor(width / LABEL_WIDTH));
  const line = brief(text);
  return line.length <= room ? line : room < 2 ? "" : `${line.slice(0, room - 1)}…`;
};

// One tree. Elements of nodes that stay are moved, so that a split and a merge are seen as they happen.
export class TreePicture {
  #boxes = new Map();
  #selected = null;

  // `select(node)`: a node was chosen; `title`: what the tree is.
  constructor(title, select) {
    this.select = select;
    this.element = svg("svg", {class: "tree-picture", role: "group", "aria-label": title, onkeydown: (event) => this.#move(event)});
  }

  get selected() { return this.#selected; }

  draw(nodes, flashes) {
    const {places, width, height} = layOut(nodes);
    this.places = places;
    this.element.setAttribute("viewBox", `0 0 ${width + 12} ${height + 2}`);
    this.element.setAttribute("width", width + 12);
    this.element.setAttribute("height", height + 2);
    for (const [id, box] of this.#boxes) {
      if (places.has(id)) continue;
      box.remove();
      this.#boxes.delete(id);
    }
    for (const [id, place] of places) this.#place(id, place, flashes.get(id));
    if (!places.has(this.#selected)) this.#selected = null;
    this.#setFocusable();
  }

  #place(id, place, flash) {
    const {node, x, y, width, height} = place;
    const box = this.#boxes.get(id) ?? this.#make(id);
    box.style.transform = `translate(${x}px, ${y}px)`;
    const w = width - GAP;
    const tall = height - GAP;
    box.frame.style.width = `${w}px`;
    box.frame.style.height = `${tall}px`;
    box.setAttribute("class", ["node", node.in_use > 0 && "in-use", node.key > 0 && "foreign"].filter(Boolean).join(" "));
    box.setAttribute("aria-pressed", String(id === this.#selected));
    box.text.textContent = `${cut(node.begin ?? `key ${node.key}`, w - 14)} `;  // a word's end
    box.facts.textContent = cut(`${number(node.to - node.from)} tok · ${bytes(bytesOf(node))}`, w - 14);
    // The visible words first: who speaks to the page says what is seen.
    box.setAttribute("aria-label", `${box.text.textContent}${box.facts.textContent}: ${describe(node)}`);
    let at = 0;
    const all = Math.max(bytesOf(node), 1);
    for (const [part, size] of [["kv", node.kv_bytes], ["window", node.window_bytes], ["state", node.state_bytes]]) {
      const length = w * size / all;
      Object.assign(box.parts[part].style, {x: `${at}px`, y: `${tall - 4}px`, width: `${length}px`});
      at += length;
    }
    box.point.setAttribute("class", node.marked ? "point marked" : "point");
    box.point.style.display = node.restore_point ? "" : "none";
    box.point.setAttribute("cx", w);
    box.point.setAttribute("cy", Math.min(tall, ROW - GAP) / 2);
    if (flash) {
      box.frame.classList.remove("flash");
      void box.frame.getBoundingClientRect();  // begins the animation again
      box.frame.classList.add("flash");
    }
  }

  #make(id) {
    const box = svg("g", {role: "button", tabindex: -1, onclick: () => this.#choose(id)});
    box.frame = svg("rect", {class: "frame", rx: 3});
    box.text = svg("text", {x: 6, y: 14});
    box.facts = svg("text", {x: 6, y: 28, class: "facts"});
    box.parts = {kv: svg("rect", {class: "part-kv", height: 4}), window: svg("rect", {class: "part-window", height: 4}),
      state: svg("rect", {class: "part-state", height: 4})};
    box.point = svg("circle", {r: 4});
    box.append(box.frame, ...Object.values(box.parts), box.text, box.facts, box.point);
    this.#boxes.set(id, box);
    this.element.append(box);
    return box;
  }

  #choose(id) {
    this.#selected = id;
    for (const [other, box] of this.#boxes) box.setAttribute("aria-pressed", String(other === id));
    this.#setFocusable();
    this.select(this.places.get(id).node);
  }

  // One stop of the tab key for the whole tree; arrows go on from there.
  #setFocusable() {
    const [first] = this.#boxes.keys();
    const focusable = this.#selected ?? first;
    for (const [id, box] of this.#boxes) box.setAttribute("tabindex", id === focusable ? 0 : -1);
  }

  #move(event) {
    const id = [...this.#boxes].find(([, box]) => box === event.target)?.[0];
    const place = this.places?.get(id);
    if (!place) return;
    const beside = [...this.places.values()].filter((other) => other.node.parent === place.node.parent).sort((a, b) => a.y - b.y);
    const at = beside.indexOf(place);
    const next = {
      Enter: id, " ": id, ArrowLeft: place.node.parent || undefined, ArrowRight: place.below[0]?.id,
      ArrowUp: beside[at - 1]?.node.id, ArrowDown: beside[at + 1]?.node.id,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    this.#choose(next);
    this.#boxes.get(next).focus();
  }
}
