// The chat view: conversations, messages as a tree of branches, and what the next request asks for.
import {streamAnswer} from "./answer.mjs";
import {json} from "./api.mjs";
import {ChatList} from "./chat_list.mjs";
import {Composer, acceptDrops} from "./composer.mjs";
import {addMessage, branch, newConversation, outline, showBranch, siblings} from "./conversation.mjs";
import {h, notify, replace} from "./dom.mjs";
import {Drawer, NARROW} from "./drawers.mjs";
import {iconButton} from "./icons.mjs";
import {onNow} from "./live.mjs";
import {PendingView, headingOf, messageView} from "./message_view.mjs";
import {schemaProblem} from "./options.mjs";
import {settingsCount, settingsPanel} from "./settings.mjs";
import {allConversations, deleteConversation, saveConversation, saveSetting, setting} from "./storage.mjs";
import {prefillWait, queueWait} from "./wait.mjs";

// `running`: by conversation, the answer on its way: {message, abort, wait, view}.
const state = {conversations: [], current: null, running: new Map(), models: []};
let elements = {};
let now = null;  // of the server
onNow((next) => { now = next; });

export async function showChat(view) {
  const known = new Map(state.conversations.map((one) => [one.id, one]));
  // A conversation that is shown or answered is the object that answers are written to.
  state.conversations = (await allConversations()).map((one) => known.get(one.id) ?? one);
  state.conversations.forEach(mend);
  await loadModels();
  if (!state.current) state.current = state.conversations[0] ?? newConversation();
  build(view);
}

// Settings were those of the page once. Answers that a reload cut off end where they were.
function mend(conversation) {
  conversation.settings ??= {...setting("settings", {})};
  for (const node of Object.values(conversation.nodes)) {
    if (!node.pending || state.running.has(conversation)) continue;
    delete node.pending;
    node.error ??= "This answer was cut off when the page was closed.";
  }
}

async function loadModels() {
  try {
    state.models = (await json("/api/tags")).models.filter((model) => model.capabilities?.includes("completion") ?? true);
  } catch (error) {
    notify(error.message, "error");
  }
}

const thinks = (name) => Boolean(state.models.find((model) => model.name === name)?.capabilities?.includes("thinking"));

function saveStarted(conversation) {
  if (conversation.leaf) saveConversation(conversation);
}

function build(view) {
  const composer = new Composer({
    send, stop: () => state.running.get(state.current)?.abort.abort(),
    modelChosen: (name) => {
      state.current.model = name;
      saveSetting("model", name);
      saveStarted(state.current);
      drawModels();
    },
    effortChosen: (level) => {
      state.current.settings.think = level;
      saveStarted(state.current);
    },
  });
  const list = new ChatList({
    conversations: () => state.conversations, current: () => state.current, isRunning: (one) => state.running.has(one),
    open, create: startNew, remove, rename, add: addImported,
  }, closeDrawers);
  const listButton = iconButton("menu", "Conversations", {"aria-expanded": "true"});
  const settingsButton = iconButton("settings", "Settings", {"aria-expanded": "false", class: "settings-button"});
  const title = h("h2", {class: "chat-title"});
  const column = h("div", {class: "column"});
  const messages = h("div", {class: "messages"}, column);
  const toEnd = iconButton("down", "To the newest message", {class: "to-end round", hidden: true, onclick: scrollToEnd});
  const status = h("p", {class: "hidden", role: "status"});
  messages.addEventListener("scroll", () => { toEnd.hidden = isAtEnd(); }, {passive: true});
  const section = h("section", {class: "conversation", "aria-label": "Conversation"},
    h("div", {class: "chat-head"}, listButton, title, settingsButton), messages,
    h("div", {class: "foot-of-chat"}, toEnd, composer.element), status);
  acceptDrops(section, (files) => composer.attach(files));
  const scrim = h("div", {class: "scrim", hidden: true, onclick: closeDrawers});
  const root = h("div", {class: "chat-view"}, list.element, section, scrim);
  const over = (isOver) => { scrim.hidden = !isOver; };
  list.search.value = elements.list?.search.value ?? "";
  const settingsOpen = Boolean(elements.settingsDrawer?.isOpen) && !NARROW.matches;
  elements = {composer, list, settingsButton, title, messages, column, toEnd, status, root,
    listDrawer: new Drawer(listButton, section, over), settingsDrawer: new Drawer(settingsButton, section, over)};
  elements.listDrawer.use(list.element, !NARROW.matches && setting("list", true));
  listButton.addEventListener("click", () => { if (!NARROW.matches) saveSetting("list", elements.listDrawer.isOpen); });
  showSettings(settingsOpen);
  replace(view, root);
  drawModels();
  draw();
  scrollToEnd();
}

function closeDrawers() {
  for (const drawer of [elements.listDrawer, elements.settingsDrawer]) if (drawer.isOpen) drawer.set(false, true);
}

NARROW.addEventListener("change", () => {
  if (!elements.root?.isConnected) return;
  elements.settingsDrawer.set(false);
  elements.listDrawer.set(!NARROW.matches && setting("list", true));
});

// The panel of the current conversation, in the place of another's.
function showSettings(isOpen) {
  elements.settingsPanel?.remove();
  const changed = () => {
    saveStarted(state.current);
    drawHead();
  };
  elements.settingsPanel = settingsPanel(state.current, {
    changed, close: () => elements.settingsDrawer.set(false, true),
    reset: () => {
      Object.assign(state.current, {system: "", settings: {}});
      changed();
      showSettings(true);
      drawModels();
    },
  });
  elements.root.append(elements.settingsPanel);
  elements.settingsDrawer.use(elements.settingsPanel, isOpen);
}

function drawModels() {
  if (!state.current.model) state.current.model = setting("model", "");
  if (!state.current.leaf && !state.models.some(({name}) => name === state.current.model)) state.current.model = state.models[0]?.name ?? "";
  elements.composer.drawModels(state.models, state.current);
}

function draw() {
  elements.list.draw();
  drawHead();
  drawMessages();
  elements.composer.drawState(state.running.has(state.current));
}

function drawHead() {
  elements.title.textContent = state.current.title || "New conversation";
  const count = settingsCount(state.current);
  const label = count > 0 ? `Settings (${count} set)` : "Settings";
  elements.settingsButton.title = label;
  elements.settingsButton.querySelector(".hidden").textContent = label;
  elements.settingsButton.classList.toggle("marked", count > 0);
}

function drawMessages() {
  const nodes = branch(state.current);
  const end = isAtEnd();
  if (nodes.length === 0) replace(elements.column, emptyView());
  else replace(elements.column, branchTree(), nodes.map(nodeView));
  if (end) scrollToEnd();
  elements.toEnd.hidden = isAtEnd();
}

function emptyView() {
  if (state.models.length === 0) {
    return h("div", {class: "empty"}, h("h3", {}, "No models yet"), h("p", {}, h("a", {href: "#/models"}, "Pull or create one"), " to begin."));
  }
  return h("div", {class: "empty"}, h("h3", {}, "Ask something"), h("p", {}, "Every branch of a conversation costs only its new tokens."));
}

function isAtEnd() {
  const {messages} = elements;
  return messages.scrollHeight - messages.scrollTop - messages.clientHeight < 80;
}

function scrollToEnd() {
  elements.messages.scrollTop = elements.messages.scrollHeight;
}

function nodeView(node) {
  const running = state.running.get(state.current);
  if (running?.message === node) {
    running.view = new PendingView(node);
    running.view.element.dataset.node = node.id;
    running.view.refresh(running.wait);
    return running.view.element;
  }
  const same = siblings(state.current, node);
  const position = same.indexOf(node) + 1;
  const go = (step) => () => {
    showBranch(state.current, same[position - 1 + step]);
    saveConversation(state.current);
    draw();
  };
  const idle = !running;
  const isAnswer = node.role === "assistant";
  // A call or constrained text cannot be continued in the middle.
  const continues = idle && isAnswer && node.id === state.current.leaf && node.content && !node.toolCalls && !state.current.settings.schema?.trim();
  const view = messageView(node, {
    count: same.length, position, previous: go(-1), next: go(1),
    edit: idle ? () => edit(node) : null,
    regenerate: isAnswer && idle ? () => answer(node.parent) : null,
    resume: continues ? () => resume(node) : null,
    answerCall: idle ? answerCall : null, openCalls: openCalls(node),
  });
  view.dataset.node = node.id;
  return view;
}

// The branches as a tree, where there is more than one.
function branchTree() {
  const rows = outline(state.current);
  const shown = new Set(branch(state.current).map((node) => node.id));
  const ends = rows.filter(({node}) => node.children.length === 0).length;
  if (ends < 2) return null;
  return h("details", {class: "tree"}, h("summary", {}, `${ends} branches`),
    h("ul", {}, rows.map(({node, depth}) => h("li", {class: shown.has(node.id) ? "shown" : ""},
      h("button", {type: "button", class: `depth${Math.min(depth, 8)}`, onclick: () => {
        showBranch(state.current, node);
        draw();
      }}, `${headingOf(node)}: ${(node.content || node.error || "").slice(0, 60)}`)))));
}

// Whether it was sent.
function send(text, files, images) {
  if (state.running.has(state.current) || !state.current.model) return false;
  const message = addMessage(state.current, state.current.leaf, {role: "user", content: text,
    ...(files.length > 0 && {files}), ...(images.length > 0 && {images})});
  if (!state.conversations.includes(state.current)) state.conversations.unshift(state.current);
  answer(message.id);
  scrollToEnd();
  return true;
}

// Another text at the place of a message: a branch beside it. A user's is answered, a result goes on with its
// call, and a model's stays as it is written.
function edit(node) {
  const view = elements.column.querySelector(`[data-node="${node.id}"]`);
  const text = h("textarea", {rows: 3, "aria-label": "Edited message"});
  text.value = node.content;
  const keep = () => {
    if (!text.value.trim() && !node.images) return;
    const {role, toolCallId, files, images, model} = node;
    const message = addMessage(state.current, node.parent, {role, content: text.value,
      ...(toolCallId && {toolCallId}), ...(files && {files}), ...(images && {images}), ...(model && {model})});
    if (role === "user") answer(message.id);
    else if (role === "tool") goOnAfterResult();
    else keepBranch();
  };
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) keep();
    if (event.key === "Escape") draw();
  });
  view.classList.add("edited");
  replace(view, text, h("div", {class: "row"},
    h("button", {type: "button", class: "primary", onclick: keep}, node.role === "assistant" ? "Keep as a new branch" : "Send as a new branch"),
    h("button", {type: "button", onclick: draw}, "Cancel")));
  text.focus();
}

function keepBranch() {
  saveConversation(state.current);
  draw();
}

// Results stand behind the message with their calls. The model goes on when it has all of them.
function openCalls(node) {
  if (node.finish === "stopped" || node.error) return [];
  const shown = branch(state.current);
  const behind = shown.slice(shown.indexOf(node) + 1);
  const end = behind.findIndex(({role}) => role !== "tool");
  if (end >= 0) return [];
  return (node.toolCalls ?? []).filter((call) => !behind.some(({toolCallId}) => toolCallId === call.id));
}

function goOnAfterResult() {
  const caller = branch(state.current).findLast(({role}) => role === "assistant");
  if (caller && openCalls(caller).length > 0) keepBranch();
  else answer(state.current.leaf);
}

function answerCall(call, result) {
  addMessage(state.current, state.current.leaf, {role: "tool", content: result, toolCallId: call.id});
  goOnAfterResult();
}

function answer(parent) {
  run(state.current, addMessage(state.current, parent, {role: "assistant", content: "", model: state.current.model}));
}

function resume(message) {
  delete message.error;
  run(state.current, message);
}

async function run(conversation, message) {
  message.pending = true;
  const running = {message, abort: new AbortController(), wait: queueWait(message.model, now), view: null};
  state.running.set(conversation, running);
  draw();
  saveConversation(conversation);
  const save = throttled(() => saveConversation(conversation), 1000);
  const redraw = throttled(() => drawRunning(conversation, running), 100);
  const changed = () => {
    redraw();
    save();
  };
  let asked = false;  // whether the model has the prompt
  const endWatch = onNow((next) => {
    if (asked) return;
    running.wait = queueWait(message.model, next);
    redraw();
  });
  const progress = (report) => {
    asked = true;
    running.wait = prefillWait(report);
  };
  try {
    await streamAnswer(conversation, message, {thinks: thinks(message.model), signal: running.abort.signal, changed, progress});
    const {schema} = conversation.settings;
    if (schema?.trim() && !message.toolCalls) message.problem = schemaProblem(schema, message.content) || undefined;
  } catch (error) {
    if (error.name === "AbortError") message.finish = "stopped";
    else message.error = error.message;
  } finally {
    endWatch();
    delete message.pending;
    state.running.delete(conversation);
    redraw.cancel();
    save.cancel();
    if (state.conversations.includes(conversation)) await saveConversation(conversation);
    ended(conversation, message);
  }
}

function ended(conversation, message) {
  if (conversation !== state.current) return elements.list.draw();
  draw();
  delete elements.status.dataset.phase;
  elements.status.textContent = message.error ? "The answer failed" : message.finish === "stopped" ? "Stopped" : "The answer is complete";
}

// Streams come in many small pieces: the page is drawn ten times a second at most, and saved once. Where that
// takes long it is done less often, because the model may be computed by the same machine.
function throttled(action, interval) {
  let timer = null;
  let took = 0;
  const call = () => {
    timer ??= setTimeout(() => {
      const begin = performance.now();
      timer = null;
      action();
      took = performance.now() - begin;
    }, Math.max(interval, 10 * took));
  };
  call.cancel = () => clearTimeout(timer);
  return call;
}

function drawRunning(conversation, {message, wait, view}) {
  if (conversation !== state.current || !view?.element.isConnected) return;
  const end = isAtEnd();
  view.refresh(wait);
  if (end) scrollToEnd();
  const phase = message.content ? "Answering" : message.reasoning ? "Thinking" : wait.phase;
  if (elements.status.dataset.phase === phase) return;
  elements.status.dataset.phase = phase;
  elements.status.textContent = phase;
}

// At once: what is typed while the models are asked for again must not be lost.
function open(conversation) {
  state.current = conversation;
  build(document.getElementById("view"));
  elements.composer.input.focus();
  loadModels().then(drawModels);
}

const startNew = () => open(newConversation(state.current.model));

function rename(conversation, title) {
  conversation.title = title;
  saveStarted(conversation);
  drawHead();
}

async function remove(conversation) {
  if (!confirm(`Delete "${conversation.title}"?`)) return;
  state.conversations = state.conversations.filter((one) => one !== conversation);
  state.running.get(conversation)?.abort.abort();
  await deleteConversation(conversation.id);
  if (conversation === state.current) open(state.conversations[0] ?? newConversation(conversation.model));
  else elements.list.draw();
}

// One that is there already is replaced, unless it is being answered.
async function addImported(conversations) {
  const free = conversations.filter(({id}) => ![...state.running.keys()].some((one) => one.id === id));
  for (const conversation of free) await saveConversation(conversation);
  const ids = new Set(free.map(({id}) => id));
  state.conversations = [...free, ...state.conversations.filter(({id}) => !ids.has(id))];
  const current = free.find(({id}) => id === state.current.id);
  if (current) open(current);
  else elements.list.draw();
}
