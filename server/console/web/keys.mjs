// The keys view, for admins: who has which key, its limits and its last use, a form for new ones, and their
// end.
import {json} from "./api.mjs";
import {h, milliseconds, notify, number, replace} from "./dom.mjs";

export async function showKeys(view) {
  const list = h("div", {class: "table-box"});
  const made = h("div", {"aria-live": "polite"});
  const body = h("div", {});
  replace(view, h("h2", {}, "Keys"), body);
  const draw = async () => {
    const {required, keys} = await json("/quire/keys");
    replace(list, table(keys, draw));
    if (required) replace(body, keyForm(draw, made), made, list);
    else replace(body, h("p", {}, "This server runs without keys: whoever reaches it may use it and change its models."),
      h("p", {}, "Make the first one with ", h("code", {}, "quire key NAME --admin --append FILE"), " and start the server with ", h("code", {}, "--keys FILE"), "."));
  };
  try {
    await draw();
  } catch (error) {
    if (error.status !== 403) throw error;
    replace(body, h("p", {class: "empty"}, "Keys are shown to keys of the role admin."));
  }
}

const limit = (value) => value > 0 ? number(value) : "no limit";

// Whoever has the key is out at once, in the middle of an answer too.
async function remove(name, done) {
  if (!confirm(`Delete the key of ${name}? It is refused from now on, and its requests in progress end.`)) return;
  try {
    await json("/quire/keys", {method: "DELETE", body: {name}});
    notify(`The key of ${name} is deleted.`);
    await done();
  } catch (error) {
    notify(error.message, "error");
  }
}

function table(keys, done) {
  return h("table", {}, h("caption", {class: "hidden"}, "API keys of this server"),
    h("thead", {}, h("tr", {}, ["Name", "Role", "Weight", "At once", "Per minute", "Requests", "Last use", "Actions"].map((name) => h("th", {scope: "col"}, name)))),
    h("tbody", {}, keys.map((key) => h("tr", {}, h("th", {scope: "row"}, key.name), h("td", {}, key.role), h("td", {class: "number"}, number(key.weight)),
      h("td", {class: "number"}, limit(key.parallel)), h("td", {class: "number"}, limit(key.per_minute)), h("td", {class: "number"}, number(key.requests)),
      h("td", {class: "number"}, key.idle_ms === undefined ? "not since the start" : key.idle_ms < 1000 ? "now" : `${milliseconds(key.idle_ms)} ago`),
      h("td", {class: "actions"}, key.own ? "this page's key"
        : h("button", {type: "button", "aria-label": `Delete the key of ${key.name}`, onclick: () => remove(key.name, done)}, "Delete"))))));
}

function field(id, label, attributes) {
  return h("div", {class: "field"}, h("label", {for: id}, label), h("input", {id, ...attributes}));
}

function keyForm(done, made) {
  const role = h("select", {id: "key-role"}, h("option", {value: "inference"}, "inference"), h("option", {value: "admin"}, "admin"));
  const form = h("form", {class: "key-form"},
    field("key-name", "Name", {required: true, maxlength: 64, pattern: "[A-Za-z0-9._@\\-]+", autocomplete: "off"}),
    h("div", {class: "field"}, h("label", {for: "key-role"}, "Role"), role),
    field("key-weight", "Weight", {type: "number", min: 1, max: 1000000, value: 1}),
    field("key-parallel", "Requests at once", {type: "number", min: 0, max: 1000000, placeholder: "no limit"}),
    field("key-per-minute", "Requests per minute", {type: "number", min: 0, max: 1000000, placeholder: "no limit"}),
    h("button", {type: "submit", class: "primary"}, "Create a key"),
    h("p", {class: "help"}, "inference: uses models. admin: also changes models and keys, and sees all requests."));
  const value = (id) => form.querySelector(`#${id}`).value;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const body = {name: value("key-name"), role: role.value, weight: Number(value("key-weight") || 1),
      parallel: Number(value("key-parallel") || 0), per_minute: Number(value("key-per-minute") || 0)};
    try {
      const {name, key} = await json("/quire/keys", {method: "POST", body});
      await done();
      replace(made, h("div", {class: "card"}, h("p", {}, `The key of ${name}. It is shown now and never again:`), h("pre", {class: "plain", tabindex: 0}, key),
        h("button", {type: "button", onclick: () => navigator.clipboard.writeText(key).then(() => notify("Copied."))}, "Copy")));
    } catch (error) {
      notify(error.message, "error");
    }
  });
  return form;
}
