// The list of conversations: search, rename, deletion, files.
import {checkConversation} from "./conversation.mjs";
import {h, notify, replace} from "./dom.mjs";
import {icon, iconButton} from "./icons.mjs";

const DAY = 24 * 3600 * 1000;

function groupOf(changed) {
  const today = new Date().setHours(0, 0, 0, 0);
  if (changed >= today) return "Today";
  if (changed >= today - DAY) return "Yesterday";
  return changed >= today - 7 * DAY ? "Previous 7 days" : "Older";
}

const titleOf = (conversation) => conversation.title || "Untitled";

function matches(conversation, words) {
  const texts = [conversation.title, ...Object.values(conversation.nodes).map(({content}) => content)].map((text) => text.toLowerCase());
  return words.every((word) => texts.some((text) => text.includes(word)));
}

// `host`: {conversations(), current(), isRunning(conversation), open, create, remove, rename, add}; functions
// of one conversation, except that create() begins one and add() takes those of a file.
export class ChatList {
  #renamed = null;  // the conversation whose title is a field

  constructor(host, close) {
    this.host = host;
    this.groups = h("div", {class: "conversations"});
    this.search = h("input", {type: "search", "aria-label": "Search conversations", placeholder: "Search", oninput: () => this.draw()});
    this.element = h("section", {class: "side", "aria-label": "Conversations"},
      h("div", {class: "panel-head"},
        h("button", {type: "button", class: "new", onclick: () => host.create()}, icon("add"), "New conversation"),
        iconButton("close", "Close list", {onclick: close, class: "narrow-only"})),
      h("div", {class: "search"}, icon("search"), this.search), this.groups,
      h("div", {class: "row foot"}, h("button", {type: "button", onclick: () => exportAll(host.conversations())}, "Export"), importButton(host)),
      h("nav", {class: "narrow-only views", "aria-label": "Views"},
        ["now", "cache", "models", "keys"].map((name) => h("a", {href: `#/${name}`}, name[0].toUpperCase() + name.slice(1)))));
  }

  draw() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = this.host.conversations();
    const shown = all.filter((one) => matches(one, words)).sort((a, b) => b.changed - a.changed);
    const groups = Map.groupBy ? Map.groupBy(shown, ({changed}) => groupOf(changed)) : new Map([["", shown]]);
    replace(this.groups, [...groups].map(([name, members]) => [name && h("p", {class: "group"}, name), h("ul", {"aria-label": name}, members.map((one) => this.#row(one)))]),
      all.length > 0 && shown.length === 0 && h("p", {class: "help"}, "No conversation has these words."));
    this.groups.querySelector(".rename")?.select();
  }

  #row(conversation) {
    if (conversation === this.#renamed) return h("li", {class: "current"}, this.#titleField(conversation));
    const title = titleOf(conversation);
    const current = conversation === this.host.current();
    return h("li", {class: current ? "current" : ""},
      h("button", {type: "button", class: "title", title, "aria-current": current ? "true" : null, onclick: () => this.host.open(conversation)},
        this.host.isRunning(conversation) && h("span", {class: "running", role: "img", "aria-label": "Answering"}), title),
      h("span", {class: "tools"},
        iconButton("edit", `Rename ${title}`, {class: "edit", onclick: () => this.#rename(conversation)}),
        iconButton("remove", `Delete ${title}`, {class: "remove", onclick: () => this.host.remove(conversation)})));
  }

  #rename(conversation) {
    this.#renamed = conversation;
    this.draw();
  }

  // Enter and leaving it keep what is typed; Escape does not.
  #titleField(conversation) {
    const field = h("input", {class: "rename", "aria-label": "Title", value: conversation.title, maxlength: 200});
    const end = (keep) => {
      if (this.#renamed !== conversation) return;
      this.#renamed = null;
      if (keep && field.value.trim()) this.host.rename(conversation, field.value.trim());
      this.draw();
      this.groups.querySelector(".current .title")?.focus();
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) end(true);
      if (event.key !== "Escape") return;
      event.preventDefault();
      end(false);
    });
    field.addEventListener("blur", () => end(true));
    return field;
  }
}

function exportAll(conversations) {
  const file = new Blob([JSON.stringify({conversations}, null, 1)], {type: "application/json"});
  const link = h("a", {href: URL.createObjectURL(file), download: "quire-conversations.json"});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function importButton(host) {
  const file = h("input", {type: "file", accept: "application/json", hidden: true});
  file.addEventListener("change", async () => {
    try {
      const {conversations} = JSON.parse(await file.files[0].text());
      await host.add(conversations.map(checkConversation));
    } catch (error) {
      notify(error.message, "error");
    }
    file.value = "";
  });
  return h("span", {}, h("button", {type: "button", onclick: () => file.click()}, "Import"), file);
}
