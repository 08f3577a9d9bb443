// Panels at the sides of the chat. Beside it where there is room; over it, with the rest out of reach, on a
// phone.

export const NARROW = matchMedia("(max-width: 52rem)");

// Opens and closes a panel with `button`. `behind` is out of reach meanwhile, on a phone; `changed(over)`
// says whether.
export class Drawer {
  #panel = null;

  constructor(button, behind, changed) {
    Object.assign(this, {button, behind, changed});
    button.addEventListener("click", () => this.set(!this.isOpen, true));
  }

  get isOpen() { return Boolean(this.#panel) && !this.#panel.hidden; }

  use(panel, open) {
    this.#panel = panel;
    panel.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && NARROW.matches && !event.defaultPrevented) this.set(false, true);
    });
    this.set(open);
  }

  set(open, byHand = false) {
    const panel = this.#panel;
    const over = open && NARROW.matches;
    panel.hidden = !open;
    this.button.setAttribute("aria-expanded", String(open));
    this.behind.inert = over;
    for (const [name, value] of [["role", "dialog"], ["aria-modal", "true"]]) {
      if (over) panel.setAttribute(name, value);
      else panel.removeAttribute(name);
    }
    this.changed(over);
    if (!byHand) return;
    if (!open) this.button.focus();
    else if (over) panel.querySelector("button:not(.narrow-only), input, textarea")?.focus();
  }
}
