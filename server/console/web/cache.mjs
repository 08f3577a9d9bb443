// The view of what a model's caches hold: the tree of cached prefixes as it changes.
import {json} from "./api.mjs";
import {TreePicture, brief, changesBetween} from "./cache_tree.mjs";
import {bytes, h, milliseconds, number, replace, stack} from "./dom.mjs";
import {onNow, visibleEvents} from "./live.mjs";

const LOGGED_MAX = 12;
const SHOWN_KEYS_MAX = 8;  // of others

export async function showCache(view) {
  const model = h("select", {id: "cache-model"});
  const body = h("div", {});
  replace(view, h("h2", {}, "Cache"), h("div", {class: "row"}, h("label", {for: "cache-model"}, "Model"), model), body);
  let abort = null;
  const watch = () => {
    abort?.abort();
    abort = new AbortController();
    if (model.value) watchModel(model.value, body, abort.signal);
    else replace(body, h("p", {class: "empty"}, "No model is loaded: there is nothing cached."));
  };
  model.addEventListener("change", watch);
  let names = null;
  const stop = onNow(({models}) => {
    const loaded = models.map(({name}) => name);
    if (JSON.stringify(loaded) === names) return;
    names = JSON.stringify(loaded);
    const shown = model.value;
    replace(model, loaded.map((name) => h("option", {value: name}, name)));
    if (loaded.includes(shown)) model.value = shown;
    if (model.value !== shown || !abort) watch();
  });
  if (names === null) {
    const {models} = await json("/api/ps");
    if (names === null && models.length === 0) watch();
  }
  return () => {
    stop();
    abort?.abort();
  };
}

async function watchModel(name, body, signal) {
  const picture = new CachePicture(body);
  while (!signal.aborted) {
    try {
      for await (const cache of visibleEvents(`/quire/cache/${name.split("/").map(encodeURIComponent).join("/")}`, {signal})) picture.draw(cache);
    } catch (error) {
      if (signal.aborted) return;
      if (error.status > 0) {
        replace(body, h("p", {class: "error", role: "alert"}, error.message));
        return;
      }
    }
    await new Promise((resolve) => { setTimeout(resolve, 1000); });
  }
}

// What is shown of one model.
class CachePicture {
  #pictures = new Map();  // by number of the key, 0: one's own
  #nodes = null;

  constructor(body) {
    this.figures = h("section", {});
    this.trees = h("div", {});
    this.details = h("section", {class: "card", "aria-live": "polite"}, h("p", {class: "empty"}, "Choose a prefix to see what it holds."));
    this.log = h("ol", {class: "cache-log", hidden: true});
    this.unchanged = h("p", {class: "help"}, "None since you look.");
    this.picked = null;
    replace(body, this.figures, legend(), h("div", {class: "cache-view"}, this.trees, h("div", {}, h("h3", {}, "Prefix"), this.details,
      h("h3", {}, "Changes"), this.unchanged, this.log)));
  }

  draw(cache) {
    const {nodes = []} = cache;
    const changes = this.#nodes ? changesBetween(this.#nodes, nodes) : [];
    this.#nodes = nodes;
    replace(this.figures, figures(cache));
    this.#drawTrees(cache, nodes, new Map(changes.map(({node, kind}) => [node.id, kind])));
    this.#note(changes);
    const picked = this.picked && nodes.find(({id}) => id === this.picked);
    if (picked) replace(this.details, facts(picked));
    else if (this.picked) {
      this.picked = null;
      replace(this.details, h("p", {class: "empty"}, "This prefix was evicted, or is part of another now."));
    }
  }

  #drawTrees(cache, nodes, flashes) {
    const keys = [...new Set([0, ...nodes.map(({key}) => key)])].sort((a, b) => a - b).slice(0, SHOWN_KEYS_MAX + 1);
    for (const [key, {section}] of this.#pictures) {
      if (keys.includes(key)) continue;
      section.remove();
      this.#pictures.delete(key);
    }
    for (const key of keys) {
      const own = nodes.filter((node) => node.key === key);
      if (!this.#pictures.has(key)) {
        const title = key === 0 ? "Your prefixes" : `Prefixes of another key (${key})`;
        const picture = new TreePicture(title, (node) => {
          this.picked = node.id;
          replace(this.details, facts(node));
        });
        const empty = h("p", {class: "empty"}, "Nothing is cached yet.");
        const section = h("section", {}, h("h3", {}, title), empty, h("div", {class: "tree-box"}, picture.element));
        this.#pictures.set(key, {picture, section, empty});
        this.trees.append(section);
      }
      const {picture, empty, section} = this.#pictures.get(key);
      empty.hidden = own.length > 0;
      section.querySelector(".tree-box").hidden = own.length === 0;
      picture.draw(own, flashes);
    }
  }

  #note(changes) {
    const words = {added: "New", split: "Split", merged: "Merged", evicted: "Evicted", used: "Used"};
    for (const {kind, node, at} of changes) {
      const what = node.key > 0 ? `a prefix of key ${node.key}` : `“${brief(node.begin ?? "").slice(0, 40)}”`;
      const where = at === undefined ? `${number(node.from)}–${number(node.to)}` : `at token ${number(at)}`;
      this.log.prepend(h("li", {}, h("span", {class: `change ${kind}`}, words[kind]), ` ${where}: ${what}`,
        h("span", {class: "figures"}, ` ${new Date().toLocaleTimeString()}`)));
    }
    while (this.log.children.length > LOGGED_MAX) this.log.lastChild.remove();
    this.log.hidden = this.log.children.length === 0;
    this.unchanged.hidden = !this.log.hidden;
  }
}

function figures({loaded, nodes = [], bytes: used = 0, budget_bytes: budget = 0, nodes_left_out: left = 0, others = null}) {
  if (!loaded) return h("p", {class: "empty"}, "The model is not loaded.");
  const sum = (field) => nodes.reduce((total, node) => total + node[field], 0);
  const counted = sum("kv_bytes") + sum("window_bytes") + sum("state_bytes");
  return [
    stack([["KV", sum("kv_bytes")], ["Sliding window", sum("window_bytes")], ["Recurrent state", sum("state_bytes")]], Math.max(counted, 1)),
    h("p", {class: "figures"}, [`${number(nodes.length)} prefixes shown`, left > 0 && `${number(left)} more`,
      `they hold ${bytes(used)} of ${bytes(budget)}`, sum("shared_bytes") > 0 && `${bytes(sum("shared_bytes"))} counted in several`,
      others && `other keys: ${number(others.keys)} with ${number(others.nodes)} prefixes`].filter(Boolean).join(" · ")),
  ];
}

const legend = () => h("p", {class: "figures legend"}, h("span", {class: "key key-point"}, "restore point"), h("span", {class: "key key-marked"}, "marked by a client"),
  h("span", {class: "key key-in-use"}, "in use"), h("span", {class: "key key-foreign"}, "another key's"));

function facts(node) {
  const rows = [
    ["Tokens", `${number(node.from)} to ${number(node.to)} (${number(node.to - node.from)})`],
    ["KV", bytes(node.kv_bytes)], ["Window", node.window_bytes > 0 && bytes(node.window_bytes)],
    ["Recurrent state", node.state_bytes > 0 && bytes(node.state_bytes)],
    ["Also in others", node.shared_bytes > 0 && bytes(node.shared_bytes)],
    ["Restore point", node.marked ? "yes, marked by a client" : node.restore_point ? "yes" : "no: only the tokens' KV"],
    ["In use", node.in_use > 0 && `${number(node.in_use)} running`], ["Hits", number(node.hits)],
    ["Age", milliseconds(node.age_ms)], ["Last use", `${milliseconds(node.idle_ms)} ago`],
    ["Evicted behind it", node.evicted_children > 0 && number(node.evicted_children)],
  ].filter(([, value]) => value);
  const text = node.begin === undefined ? h("p", {class: "figures"}, "The text of another key is not shown.")
    : h("pre", {class: "plain", tabindex: 0}, node.end ? `${node.begin}\n…\n${node.end}` : node.begin);
  return [h("dl", {}, rows.map(([label, value]) => [h("dt", {}, label), h("dd", {}, value)])), text];
}
