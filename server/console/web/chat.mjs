// The chat view: conversations, messages as a tree of branches, and what the next request asks for.
import {streamAnswer} from "./answer.mjs";
import {json} from "./api.mjs";
import {addMessage, branch, checkConversation, newConversation, outline, showBranch, siblings} from "./conversation.mjs";
import {h, notify, replace} from "./dom.mjs";
import {messageView} from "./message_view.mjs";
import {schemaProblem} from "./options.mjs";
import {settingsPanel} from "./settings.mjs";
import {allConversations, deleteConversation, saveConversation, saveSetting, setting} from "./storage.mjs";

const ATTACHMENT_BYTES = 1 << 20;

const state = {conversations: [], current: null, running: null, settings: setting("settings", {}), models: []};
let elements = {};

export async function showChat(view) {
  const conversations = await allConversations();
  // The shown conversation is the object that answers are written to.
  state.conversations = conversations.map((one) => one.id === state.current?.id ? state.current : one);
  await loadModels();
  if (!state.current) state.current = state.conversations[0] ?? newConversation(setting("model", state.models[0]?.name ?? ""));
  // Answers that a reload cut off end where they were.
  for (const node of Object.values(state.current.nodes)) {
    if (node.pending && !state.running) {
      delete node.pending;
      node.error ??= "This answer was cut off when the page was closed. Regenerate it to go on.";
    }
  }
  build(view);
}

async function loadModels() {
  try {
    state.models = (await json("/api/tags")).models.filter((model) => model.capabilities?.includes("completion") ?? true);
  } catch (error) {
    notify(error.message, "error");
  }
}

function build(view) {
  const list = h("ul", {class: "conversations"});
  const messages = h("div", {class: "messages", "aria-live": "off"});
  const input = h("textarea", {id: "prompt", rows: 3, "aria-label": "Message", placeholder: "Message. Enter sends, Shift+Enter is a new line."});
  const send = h("button", {type: "submit", class: "primary"}, "Send");
  const stop = h("button", {type: "button", onclick: () => state.running?.abort()}, "Stop");
  const model = h("select", {"aria-label": "Model"});
  const files = h("input", {type: "file", multiple: true, hidden: true, accept: "text/*,.md,.json,.csv,.c,.cc,.h,.py,.js,.ts,.rs,.go"});
  elements = {list, messages, input, send, stop, model, attachments: []};
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      submit();
    }
  });
  files.addEventListener("change", () => attach([...files.files]).finally(() => { files.value = ""; }));
  model.addEventListener("change", () => {
    state.current.model = model.value;
    saveSetting("model", model.value);
  });
  const form = h("form", {class: "composer"}, h("div", {class: "attached"}), input,
    h("div", {class: "row"}, model, h("button", {type: "button", onclick: () => files.click()}, "Attach text"), files,
      h("span", {class: "grow"}), stop, send));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  elements.attached = form.querySelector(".attached");
  const panel = settingsPanel(state.current, state.settings, () => {
    saveSetting("settings", state.settings);
    if (state.current.leaf) saveConversation(state.current);
  });
  replace(view, h("div", {class: "chat-view"},
    h("aside", {class: "side", "aria-label": "Conversations"},
      h("button", {type: "button", class: "wide-button", onclick: startNew}, "New conversation"), list,
      h("div", {class: "row"}, h("button", {type: "button", onclick: exportAll}, "Export"), importButton())),
    h("section", {class: "conversation", "aria-label": "Conversation"}, messages, form),
    panel));
  drawModels();
  draw();
}

function drawModels() {
  const {model} = elements;
  replace(model, state.models.map(({name, capabilities}) =>
    h("option", {value: name, selected: name === state.current.model},
      name + (capabilities?.length > 1 ? ` (${capabilities.filter((one) => one !== "completion").join(", ")})` : ""))));
  if (state.models.length === 0) replace(model, h("option", {value: ""}, "no model: pull one first"));
  if (!state.models.some(({name}) => name === state.current.model) && state.models[0]) state.current.model = state.models[0].name;
  model.value = state.current.model;
}

function draw() {
  drawList();
  drawMessages();
  elements.stop.hidden = !state.running;
  elements.send.disabled = Boolean(state.running);
}

function drawList() {
  replace(elements.list, state.conversations.map((conversation) => h("li", {class: conversation === state.current ? "current" : ""},
    h("button", {type: "button", "aria-current": conversation === state.current ? "true" : null, onclick: () => open(conversation)},
      conversation.title || "Untitled"),
    h("button", {type: "button", class: "remove", "aria-label": `Delete ${conversation.title}`, onclick: () => remove(conversation)}, "×"))));
}

function drawMessages() {
  const nodes = branch(state.current);
  if (nodes.length === 0) {
    replace(elements.messages, h("p", {class: "empty"}, "Ask something. Every branch of a conversation costs only its new tokens."));
    return;
  }
  replace(elements.messages, branchTree(), nodes.map(nodeView));
  elements.messages.scrollTop = elements.messages.scrollHeight;
}

function nodeView(node) {
  const busy = Boolean(node.pending);
  const same = siblings(state.current, node);
  const position = same.indexOf(node) + 1;
  const go = (step) => () => {
    showBranch(state.current, same[position - 1 + step]);
    saveConversation(state.current);
    draw();
  };
  const view = messageView(node, {
    count: same.length, position, previous: go(-1), next: go(1),
    edit: !state.running ? () => edit(node) : null,
    regenerate: node.role === "assistant" && !state.running ? () => answer(node.parent) : null,
    answerCall: busy || state.running ? null : answerCall, openCalls: openCalls(node),
  }, busy);
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
      }}, `${node.role}: ${node.content.slice(0, 60)}`)))));
}

function submit() {
  const text = [...elements.attachments.map(({name, content}) => `File ${name}:\n\`\`\`\n${content}\n\`\`\``), elements.input.value]
    .join("\n\n").trim();
  if (!text || state.running || !state.current.model) return;
  elements.input.value = "";
  elements.attachments.length = 0;
  drawAttachments();
  const message = addMessage(state.current, state.current.leaf, {role: "user", content: text});
  if (!state.conversations.includes(state.current)) state.conversations.unshift(state.current);
  answer(message.id);
}

// Another text at the place of a message: a branch beside it. A user's is answered, a result goes on with its
// call, and a model's stays as it is written.
function edit(node) {
  const view = elements.messages.querySelector(`[data-node="${node.id}"]`);
  const text = h("textarea", {rows: 4, "aria-label": "Edited message"});
  text.value = node.content;
  replace(view, text, h("div", {class: "row"},
    h("button", {type: "button", class: "primary", onclick: () => {
      if (!text.value.trim()) return;
      const {role, toolCallId} = node;
      const message = addMessage(state.current, node.parent, {role, content: text.value, ...(toolCallId && {toolCallId})});
      if (role === "user") answer(message.id);
      else if (role === "tool") goOnAfterResult();
      else keepBranch();
    }}, node.role === "assistant" ? "Keep as a new branch" : "Send as a new branch"),
    h("button", {type: "button", onclick: draw}, "Cancel")));
  text.focus();
}

function keepBranch() {
  saveConversation(state.current);
  draw();
}

// Results stand behind the message with their calls. The model goes on when it has all of them.
function openCalls(node) {
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

async function answer(parent) {
  const conversation = state.current;
  const message = addMessage(conversation, parent, {role: "assistant", content: "", pending: true});
  const abort = new AbortController();
  state.running = abort;
  draw();
  saveConversation(conversation);
  const save = throttled(() => saveConversation(conversation), 1000);
  const redraw = throttled(() => {
    if (conversation === state.current) drawPending(message);
    save();
  }, 100);
  try {
    await streamAnswer(conversation, message, state.settings, abort.signal, redraw);
    if (state.settings.schema?.trim() && !message.toolCalls) message.error = schemaProblem(state.settings.schema, message.content) || undefined;
  } catch (error) {
    if (error.name === "AbortError") message.finish = "stopped";
    else message.error = error.message;
  } finally {
    delete message.pending;
    state.running = null;
    redraw.cancel();
    save.cancel();
    await saveConversation(conversation);
    draw();
  }
}

// Streams come in many small pieces: the page is drawn ten times a second at most, and saved once.
function throttled(action, interval) {
  let timer = null;
  const call = () => { timer ??= setTimeout(() => { timer = null; action(); }, interval); };
  call.cancel = () => clearTimeout(timer);
  return call;
}

function drawPending(message) {
  const old = elements.messages.querySelector(`[data-node="${message.id}"]`);
  if (!old) return;
  const {messages} = elements;
  const atEnd = messages.scrollHeight - messages.scrollTop - messages.clientHeight < 80;
  old.replaceWith(nodeView(message));
  if (atEnd) messages.scrollTop = messages.scrollHeight;
}

async function attach(files) {
  for (const file of files) {
    if (file.size > ATTACHMENT_BYTES) {
      notify(`${file.name} is larger than 1 MB.`, "error");
      continue;
    }
    const content = await file.text();
    if (content.includes("\u0000")) notify(`${file.name} is not a text file.`, "error");
    else elements.attachments.push({name: file.name, content});
  }
  drawAttachments();
}

function drawAttachments() {
  replace(elements.attached, elements.attachments.map((one, index) => h("span", {class: "chip"}, one.name,
    h("button", {type: "button", "aria-label": `Remove ${one.name}`, onclick: () => {
      elements.attachments.splice(index, 1);
      drawAttachments();
    }}, "×"))));
}

// At once: what is typed while the models are asked for again must not be lost.
function open(conversation) {
  if (state.running) return notify("Stop the running answer first.");
  state.current = conversation;
  build(document.getElementById("view"));
  loadModels().then(drawModels);
}

const startNew = () => open(newConversation(state.current.model));

async function remove(conversation) {
  if (conversation === state.current && state.running) return;
  if (!confirm(`Delete "${conversation.title}"?`)) return;
  await deleteConversation(conversation.id);
  state.conversations = state.conversations.filter((one) => one !== conversation);
  if (conversation === state.current) open(state.conversations[0] ?? newConversation(conversation.model));
  else drawList();
}

function exportAll() {
  const file = new Blob([JSON.stringify({conversations: state.conversations}, null, 1)], {type: "application/json"});
  const link = h("a", {href: URL.createObjectURL(file), download: "quire-conversations.json"});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function importButton() {
  const file = h("input", {type: "file", accept: "application/json", hidden: true});
  file.addEventListener("change", async () => {
    try {
      const {conversations} = JSON.parse(await file.files[0].text());
      for (const conversation of conversations.map(checkConversation)) await saveConversation(conversation);
      state.conversations = await allConversations();
      drawList();
    } catch (error) {
      notify(error.message, "error");
    }
    file.value = "";
  });
  return h("span", {}, h("button", {type: "button", onclick: () => file.click()}, "Import"), file);
}
