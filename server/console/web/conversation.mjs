// A conversation as a tree of messages: an edited or regenerated message begins a branch beside the old one,
// and costs only its own tokens, because the server has the common part cached. Plain data; no DOM.

// Images of messages are data URLs of these kinds, which models read.
export const PICTURE_KINDS = ["image/png", "image/jpeg", "image/webp"];
const isPictureUrl = (url) => PICTURE_KINDS.some((kind) => url.startsWith(`data:${kind};base64,`));

export function newConversation(model = "") {
  return {id: crypto.randomUUID(), title: "", model, system: "", settings: {}, changed: Date.now(), nodes: {}, roots: [], leaf: null};
}

// Adds a message behind `parent` (an id, or null for the beginning) and makes it the end of the shown branch.
export function addMessage(conversation, parent, message) {
  const id = crypto.randomUUID();
  conversation.nodes[id] = {id, parent, children: [], ...message};
  (parent === null ? conversation.roots : conversation.nodes[parent].children).push(id);
  conversation.leaf = id;
  conversation.changed = Date.now();
  if (!conversation.title && message.role === "user") conversation.title = titleOf(message.content || [...message.files ?? [], ...message.images ?? []][0].name);
  return conversation.nodes[id];
}

function titleOf(text) {
  const line = text.trim().split("\n", 1)[0];
  return line.length > 60 ? `${line.slice(0, 57)}...` : line;
}

// The messages of the shown branch, oldest first.
export function branch(conversation, leaf = conversation.leaf) {
  const path = [];
  for (let id = leaf; id !== null && id !== undefined; id = conversation.nodes[id].parent) path.push(conversation.nodes[id]);
  return path.reverse();
}

// The messages that stand at the same place, oldest first.
export function siblings(conversation, node) {
  const ids = node.parent === null ? conversation.roots : conversation.nodes[node.parent].children;
  return ids.map((id) => conversation.nodes[id]);
}

// Shows the branch that goes through `node`: to its newest end.
export function showBranch(conversation, node) {
  let end = node;
  while (end.children.length > 0) end = conversation.nodes[end.children.at(-1)];
  conversation.leaf = end.id;
}

// Whether an answer was stopped or failed. It stays on the page, and the model does not get to see it.
export const isIncomplete = ({role, finish, error}) => role === "assistant" && (finish === "stopped" || Boolean(error));

// A fence that no line of `content` closes.
function fenceFor(content) {
  const longest = Math.max(2, ...(content.match(/`{3,}/g) ?? []).map(({length}) => length));
  return "`".repeat(longest + 1);
}

// What the model reads: files stand before the text.
export function textOf({content, files = []}) {
  const parts = files.map(({name, content: text}) => `File ${name}:\n${fenceFor(text)}\n${text}\n${fenceFor(text)}`);
  return [...parts, content].join("\n\n").trim();
}

// As /v1/chat/completions takes it: images stand before the text.
function contentOf(message) {
  const text = textOf(message);
  if (!message.images?.length) return text;
  return [...message.images.map(({url}) => ({type: "image_url", image_url: {url}})), ...(text ? [{type: "text", text}] : [])];
}

// The messages as /v1/chat/completions takes them. Reasoning is not sent back, nor are incomplete answers and
// the results of their calls.
export function messagesFor(conversation, leaf = conversation.leaf) {
  const messages = [];
  let left = false;  // whether the newest answer was left out
  for (const node of branch(conversation, leaf)) {
    if (node.role !== "tool") left = isIncomplete(node);
    if (left) continue;
    const message = {role: node.role, content: contentOf(node)};
    if (node.toolCalls?.length) message.tool_calls = node.toolCalls;
    if (node.toolCallId) message.tool_call_id = node.toolCallId;
    messages.push(message);
  }
  if (conversation.system.trim()) messages.unshift({role: "system", content: conversation.system});
  return messages;
}

// Branches and their lengths, for the tree picture: rows of {node, depth}, depth-first.
export function outline(conversation) {
  const rows = [];
  const visit = (ids, depth) => {
    for (const id of ids) {
      const node = conversation.nodes[id];
      rows.push({node, depth});
      visit(node.children, depth + (ids.length > 1 || node.children.length > 1 ? 1 : 0));
    }
  };
  visit(conversation.roots, 0);
  return rows;
}

// What an exported file must be to be imported; throws with the reason.
export function checkConversation(value) {
  const fail = (reason) => { throw new Error(`not a conversation of this page: ${reason}`); };
  if (typeof value !== "object" || value === null) fail("no object");
  for (const name of ["id", "title", "model", "system"]) if (typeof value[name] !== "string") fail(`${name} is no text`);
  const hasOnly = (object, type) => typeof object === "object" && object !== null && Object.values(object).every((one) => typeof one === type);
  value.settings ??= {};
  if (!hasOnly(value.settings, "string")) fail("settings that are no text");
  if (!Array.isArray(value.roots) || typeof value.nodes !== "object" || value.nodes === null) fail("no messages");
  for (const [id, node] of Object.entries(value.nodes)) {
    if (node.id !== id || typeof node.content !== "string" || !Array.isArray(node.children)) fail(`message ${id}`);
    if (!["user", "assistant", "tool"].includes(node.role)) fail(`role of message ${id}`);
    const files = node.files ?? [];
    if (!Array.isArray(files) || !files.every((file) => hasOnly(file, "string") && "name" in file && "content" in file)) fail(`files of message ${id}`);
    const images = node.images ?? [];
    if (!Array.isArray(images) || !images.every((one) => hasOnly(one, "string") && "name" in one && isPictureUrl(one.url ?? ""))) fail(`images of message ${id}`);
    const {model = "", error = "", finish = "", reasoning = "", problem = ""} = node;
    if (!hasOnly([model, error, finish, reasoning, problem], "string") || !hasOnly(node.figures ?? {}, "number")) fail(`message ${id}`);
    if (node.parent !== null && !value.nodes[node.parent]?.children.includes(id)) fail(`parent of message ${id}`);
    for (const child of node.children) if (value.nodes[child]?.parent !== id) fail(`child of message ${id}`);
  }
  for (const id of value.roots) if (value.nodes[id]?.parent !== null) fail("a root");
  if (value.leaf !== null && !value.nodes[value.leaf]) fail("leaf");
  return value;
}
