// Where a message is written: its text, files and images, the model and how much it thinks.
import {bytes, h, notify, replace} from "./dom.mjs";
import {icon, iconButton} from "./icons.mjs";
import {isPicture, pictureBytes, readPicture, thumbnail} from "./pictures.mjs";
import {shortName} from "./wait.mjs";

const FILE_BYTES = 1 << 20;
const EFFORTS = [["", "Reasoning: default"], ["none", "Reasoning: off"], ["low", "Reasoning: low"], ["medium", "Reasoning: medium"],
  ["high", "Reasoning: high"]];

// The text of a file; throws with the reason why there is none.
async function readText(file) {
  if (file.size > FILE_BYTES) throw new Error(`${file.name} is larger than 1 MB.`);
  const content = await file.arrayBuffer().catch(() => { throw new Error(`${file.name} cannot be read.`); });
  if (new Uint8Array(content).includes(0)) throw new Error(`${file.name} is not a text file.`);
  try {
    return new TextDecoder("utf-8", {fatal: true}).decode(content);
  } catch {
    return new TextDecoder("windows-1252").decode(content);
  }
}

// `host`: {send(text, files, images), stop(), modelChosen(name), effortChosen(level)}.
export class Composer {
  #attached = [];  // files: {name, content}, images: {name, url}
  #sees = false;   // the model takes images

  constructor(host) {
    this.host = host;
    this.input = h("textarea", {id: "prompt", rows: 2, "aria-label": "Message", placeholder: "Message"});
    this.attached = h("div", {class: "attached"});
    this.model = h("select", {"aria-label": "Model", onchange: () => host.modelChosen(this.model.value)});
    this.effort = h("select", {id: "think", "aria-label": "Reasoning", onchange: () => host.effortChosen(this.effort.value)},
      EFFORTS.map(([value, label]) => h("option", {value}, label)));
    this.sendButton = iconButton("send", "Send", {type: "submit", class: "primary round"});
    this.stopButton = iconButton("stop", "Stop", {class: "round stop", onclick: () => host.stop()});
    const chosen = h("input", {type: "file", multiple: true, hidden: true});
    chosen.addEventListener("change", () => this.attach([...chosen.files]).finally(() => { chosen.value = ""; }));
    this.element = h("form", {class: "composer"}, h("div", {class: "box"}, this.attached, this.input,
      h("div", {class: "row"}, iconButton("attach", "Attach files", {onclick: () => chosen.click()}), chosen, this.model, this.effort,
        h("span", {class: "grow"}), h("span", {class: "hint"}, "Enter sends, Shift+Enter is a new line"), this.stopButton, this.sendButton)));
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    // The keyboard of a touch screen has one key for a new line.
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || matchMedia("(pointer: coarse)").matches) return;
      event.preventDefault();
      this.#send();
    });
    this.input.addEventListener("paste", (event) => {
      if (event.clipboardData.files.length === 0) return;
      event.preventDefault();
      this.attach([...event.clipboardData.files]);
    });
  }

  #send() {
    const text = this.input.value.trim();
    if (!text && this.#attached.length === 0) return;
    const isImage = (one) => Boolean(one.url);
    if (!this.host.send(text, this.#attached.filter((one) => !isImage(one)), this.#attached.filter(isImage))) return;
    this.input.value = "";
    this.#attached = [];
    this.#drawAttached();
  }

  // `models`: of /api/tags. A model that is gone stays the conversation's, and says so.
  drawModels(models, {model, settings}) {
    const shown = models.map(({name}) => name);
    const gone = model && !shown.includes(model);
    replace(this.model, gone && h("option", {value: model, selected: true}, `${shortName(model)} (not on this server)`),
      shown.map((name) => h("option", {value: name, selected: name === model}, shortName(name))));
    this.model.hidden = shown.length === 0 && !gone;
    const capabilities = models.find(({name}) => name === model)?.capabilities ?? [];
    this.effort.hidden = !capabilities.includes("thinking");
    this.#sees = capabilities.includes("vision");
    this.effort.value = settings.think ?? "";
  }

  drawState(running) {
    this.stopButton.hidden = !running;
    this.sendButton.hidden = running;
  }

  async attach(files) {
    for (const file of files) {
      try {
        this.#attached.push(await this.#read(file));
      } catch (error) {
        notify(error.message, "error");
      }
    }
    this.#drawAttached();
  }

  async #read(file) {
    if (!isPicture(file)) return {name: file.name, content: await readText(file)};
    if (!this.#sees) throw new Error(`${file.name} is an image. ${shortName(this.model.value)} reads text only.`);
    return readPicture(file);
  }

  #drawAttached() {
    replace(this.attached, this.#attached.map((one) => h("span", {class: "chip"}, one.url ? thumbnail(one) : icon("file"),
      h("span", {class: "file-name"}, one.name), h("span", {class: "figures"}, bytes(one.url ? pictureBytes(one) : one.content.length)),
      iconButton("close", `Remove ${one.name}`, {onclick: () => {
        this.#attached = this.#attached.filter((other) => other !== one);
        this.#drawAttached();
      }}))));
  }
}

const hasFiles = (event) => event.dataTransfer.types.includes("Files");

// A file that is dropped beside its place must not replace the page.
for (const name of ["dragover", "drop"]) addEventListener(name, (event) => { if (hasFiles(event)) event.preventDefault(); });

// Files that are dropped on `target` go to `take`.
export function acceptDrops(target, take) {
  const cover = h("div", {class: "drop", hidden: true}, h("p", {}, icon("file"), "Drop files to attach them"));
  target.append(cover);
  target.addEventListener("dragenter", (event) => { if (hasFiles(event)) cover.hidden = false; });
  target.addEventListener("dragleave", (event) => { if (!target.contains(event.relatedTarget)) cover.hidden = true; });
  target.addEventListener("drop", (event) => {
    cover.hidden = true;
    if (hasFiles(event)) take([...event.dataTransfer.files]);
  });
}
