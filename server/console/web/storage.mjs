// Conversations in the browser's own database. Nothing is sent anywhere.

const STORE = "conversations";
let opened = null;

function database() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open("quire", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, {keyPath: "id"});
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
}

async function run(mode, action) {
  const store = (await database()).transaction(STORE, mode).objectStore(STORE);
  return new Promise((resolve, reject) => {
    const request = action(store);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

export async function allConversations() {
  const all = await run("readonly", (store) => store.getAll());
  return all.sort((a, b) => b.changed - a.changed);
}
export const saveConversation = (conversation) => run("readwrite", (store) => store.put(structuredClone(conversation)));
export const deleteConversation = (id) => run("readwrite", (store) => store.delete(id));

// Small settings; what is not there, or broken, is `fallback`.
export function setting(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(`quire.${name}`)) ?? fallback;
  } catch {
    return fallback;
  }
}
export function saveSetting(name, value) {
  localStorage.setItem(`quire.${name}`, JSON.stringify(value));
}
