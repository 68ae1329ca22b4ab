"use strict";
// The enlarged view: two pictures of one crop over each other, with a divider between them that is dragged or moved by keys.

class Viewer {
  constructor() {
    this.rows = [];
    this.at = 0; // which row
    this.sides = [0, 0]; // which of its views stand left and right of the divider
    this.title = el("h2", { id: "viewer-title" });
    this.note = el("p", { class: "note" });
    this.count = el("span", { class: "note" });
    this.turns = el("span", { class: "turns" }, this.turn(-1, "‹", "Previous picture"), this.count, this.turn(1, "›", "Next picture"));
    this.images = ["right", "left"].map((side) => el("img", { class: side, alt: "", onload: () => this.fit() }));
    this.divider = el("input", { type: "range", min: "0", max: "100", class: "divider", "aria-label": "Divider between two pictures", oninput: () => this.divide() });
    this.stage = el("div", { class: "wipe" }, ...this.images, this.divider);
    this.area = el("div", { class: "area" }, this.stage);
    this.choices = ["left", "right"].map((side, place) => this.choice(`Picture ${side} of the divider`, place));
    this.choiceBar = el("div", { class: "choices" }, ...this.choices);
    const close = el("button", { type: "button", class: "small", autofocus: true, onclick: () => this.dialog.close() }, "Close");
    const head = el("div", { class: "head" }, el("div", { class: "about", "aria-live": "polite" }, this.title, this.note), this.turns, close);
    this.dialog = el("dialog", { class: "viewer", "aria-labelledby": "viewer-title", onkeydown: (event) => this.onKey(event) }, head, this.choiceBar, this.area);
    document.body.append(this.dialog);
    window.addEventListener("resize", () => this.dialog.open && this.fit());
  }

  /** Open a row at one of its views, beside the next one; of the last, beside the one before it. */
  open(rows, row, view) {
    const left = Math.max(0, Math.min(view, row.views.length - 2));
    this.rows = rows;
    this.at = rows.indexOf(row);
    this.sides = [left, Math.min(left + 1, row.views.length - 1)];
    this.divider.value = "50";
    this.turns.hidden = rows.length < 2;
    this.dialog.showModal(); // when it closes, the browser gives the focus back
    this.show();
  }

  turn(by, sign, name) {
    return el("button", { type: "button", class: "small", "aria-label": name, title: name, onclick: () => this.go(by) }, sign);
  }

  choice(name, place) {
    const choose = (event) => {
      this.sides[place] = event.currentTarget.selectedIndex;
      this.show();
    };
    return el("select", { "aria-label": name, title: name, onchange: choose });
  }

  go(by) {
    this.at = (this.at + by + this.rows.length) % this.rows.length;
    this.show();
  }

  show() {
    const { title, note, views } = this.rows[this.at];
    this.title.replaceChildren(said(title));
    this.note.replaceChildren(said(note));
    setText(this.count, `${this.at + 1} of ${this.rows.length}`);
    this.sides = this.sides.map((side) => Math.min(side, views.length - 1));
    const [left, right] = this.sides.map((side) => views[side]);
    [right, left].forEach((view, place) => {
      this.images[place].src = view.source;
      this.images[place].alt = viewText(view);
    });
    this.choices.forEach((choice, place) => {
      choice.replaceChildren(...views.map((view) => el("option", {}, view.name)));
      choice.selectedIndex = this.sides[place];
    });
    this.choiceBar.hidden = this.divider.hidden = views.length < 2;
    this.divide();
    this.fit();
  }

  divide() {
    const { value } = this.divider;
    this.stage.style.setProperty("--at", this.divider.hidden ? "100%" : `${value}%`);
    const [right, left] = this.images.map((image) => image.alt);
    this.divider.setAttribute("aria-valuetext", `${left} on ${value} % from the left, then ${right}`);
  }

  /** As large as there is room, a pixel of the picture being 1, 2, 3 ... of the page. */
  fit() {
    const width = Math.max(...this.images.map((image) => image.naturalWidth));
    const height = Math.max(...this.images.map((image) => image.naturalHeight));
    if (!width) return; // not decoded yet
    const room = Math.min((this.area.clientWidth - 2 * DIVIDER_PX) / width, this.area.clientHeight / height);
    const times = Math.max(1, Math.floor(room));
    this.dialog.style.setProperty("--width", `${width * times}px`);
    this.stage.style.height = `${height * times}px`;
    for (const image of this.images) image.classList.toggle("exact", width * times > image.naturalWidth);
  }

  onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches("input, select")) return; // arrows are theirs
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    this.go(by);
  }
}

const DIVIDER_PX = 16; // from its middle to its edge, as page.css has it

/** What a view is, with what else is known of it: "output, step 20". */
function viewText({ name, note }) {
  return [name, note].filter(Boolean).join(", ");
}

let viewer = null;

/** Enlarge a view of a row; the arrow keys go through all rows. */
function enlarge(rows, row, view) {
  viewer = viewer || new Viewer();
  viewer.open(rows, row, view);
}
