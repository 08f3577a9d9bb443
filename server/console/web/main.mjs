// The page: which view is shown, the key, the theme, and whether the server answers.
import {json, onKeyNeeded} from "./api.mjs";
import {showCache} from "./cache.mjs";
import {showChat} from "./chat.mjs";
import {h, notify, replace} from "./dom.mjs";
import {showKeys} from "./keys.mjs";
import {watchServer} from "./live.mjs";
import {showModels} from "./models.mjs";
import {showNow} from "./now.mjs";
import {saveSetting, setting} from "./storage.mjs";

const VIEWS = {chat: showChat, now: showNow, cache: showCache, models: showModels, keys: showKeys};
let leave = null;  // ends what the shown view left running
let turn = 0;  // counts what was shown: a view whose data come late does not write over the next one

async function show() {
  if (location.hash && !location.hash.startsWith("#/")) return;
  const name = location.hash.slice(2).split("/")[0] || "chat";
  const mine = ++turn;
  const old = document.getElementById("view");
  const view = old.cloneNode(false);
  old.replaceWith(view);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#/${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  leave?.();
  leave = null;
  view.className = `view-${name}`;
  if (!VIEWS[name]) {
    replace(view, h("p", {}, "There is no such view."));
    return;
  }
  try {
    const end = await VIEWS[name](view) ?? null;
    if (mine === turn) leave = end;
    else end?.();
  } catch (error) {
    replace(view, h("p", {class: "error", role: "alert"}, error.message));
  }
}

let asking = null;
function askForKey(reason) {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("key-dialog");
    const key = document.getElementById("key");
    if (reason) document.getElementById("key-reason").textContent = reason;
    dialog.addEventListener("close", () => {
      asking = null;
      resolve(key.value);
      key.value = "";
    }, {once: true});
    dialog.showModal();
  });
  return asking;
}

let lost = false;
async function showConnection(connected) {
  const status = document.getElementById("server");
  status.className = connected ? "" : "error";
  status.textContent = connected ? (await json("/api/version")).version : "the server does not answer";
  if (connected && lost) {
    notify("The server is back.");
    show();
  }
  lost = !connected;
}

const THEMES = ["auto", "light", "dark"];
function applyTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.getElementById("theme").textContent = `Theme: ${theme}`;
  saveSetting("theme", theme);
}

document.getElementById("theme").addEventListener("click", () => {
  applyTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length]);
});
applyTheme(setting("theme", "auto"));
onKeyNeeded(askForKey);
addEventListener("hashchange", show);
await show();
watchServer(showConnection);
