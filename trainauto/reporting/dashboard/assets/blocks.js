"use strict";
// Blocks that are texts: tables, pairs and the list of events. Each keeps its element and is brought up to date in place.

/** A table that scrolls by itself where it is wider than the page. Marked cells are the best of their kind. */
function tableElement(block) {
  const isMarked = new Set((block.marked || []).map(([row, column]) => `${row} ${column}`));
  const kind = (column) => (block.numeric[column] ? "number" : null);
  const cell = (text, row, column) => {
    const isBest = isMarked.has(`${row} ${column}`);
    const content = isBest ? [said(text, "b"), el("span", { class: "unseen" }, " (best)")] : [said(text)];
    return column === 0 ? el("th", { scope: "row", class: kind(0) }, ...content) : el("td", { class: kind(column) }, ...content);
  };
  const head = block.columns.map((name, column) => el("th", { scope: "col", class: kind(column) }, said(name)));
  const rows = block.rows.map((row, index) => el("tr", {}, ...row.map((text, column) => cell(text, index, column))));
  const table = el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows));
  return el("div", { class: "wide-table", role: "region", tabindex: "0", "aria-label": block.title }, table);
}

class Table {
  constructor(block) {
    this.title = el("h3");
    this.element = el("article", { class: "card table" }, this.title, el("div"));
    this.update(block);
  }

  update(block) {
    const content = JSON.stringify(block);
    if (content === this.content) return;
    this.content = content;
    this.title.replaceChildren(said(block.title));
    const before = this.element.lastChild;
    const after = block.rows.length ? tableElement(block) : el("p", { class: "none" }, "Nothing to list yet.");
    const place = [before.scrollLeft, before.scrollTop];
    const hadFocus = document.activeElement === before;
    before.replaceWith(after);
    [after.scrollLeft, after.scrollTop] = place;
    if (hadFocus) after.focus({ preventScroll: true });
  }
}

class Pairs {
  constructor(block) {
    this.title = el("h3");
    this.list = el("dl");
    this.isFolded = block.folded;
    const summary = el("summary", {}, this.title);
    const parts = block.folded ? [el("details", {}, summary, this.list)] : [this.title, this.list];
    this.element = el("article", { class: "card pairs" }, ...parts);
    this.update(block);
  }

  update(block) {
    this.title.replaceChildren(said(block.title));
    const rows = block.rows.map(([key, value]) => el("div", {}, said(key, "dt"), said(value, "dd")));
    this.list.replaceChildren(...rows);
    if (!rows.length) this.list.append(el("div", {}, el("dt", {}, "Nothing"), el("dd", {}, "–")));
  }
}

/** Everything that happened, the newest last, with a button for each kind that shows or hides it. */
class Events {
  constructor(block) {
    this.hidden = new Set(); // kinds that a person switched off
    this.items = new Map(); // elements by content: what stays the same is not touched
    this.filters = new Map();
    this.title = el("h3");
    this.bar = el("div", { class: "filters", role: "group", "aria-label": "Kinds of events" });
    this.leftOut = el("p", { class: "note" });
    this.list = el("ol", { class: "events" });
    this.element = el("article", { class: "card events-card" }, this.title, this.bar, this.leftOut, this.list);
    this.update(block);
  }

  update(block) {
    this.title.replaceChildren(said(block.title));
    this.leftOut.hidden = !block.left_out;
    setText(this.leftOut, `${formatStep(block.left_out || 0)} more events are not on this page; the logs of the run have them.`);
    const before = this.items;
    this.items = new Map();
    for (const item of block.items) {
      let key = JSON.stringify(item);
      while (this.items.has(key)) key += " again";
      this.items.set(key, before.get(key) || this.item(item));
    }
    for (const [key, element] of before) if (!this.items.has(key)) element.remove();
    for (const element of this.items.values()) if (!element.isConnected) this.list.append(element);
    if (!block.items.length) this.list.replaceChildren(el("li", { class: "none" }, "Nothing happened yet that was worth a word."));
    this.showFilters(block.items);
  }

  item(item) {
    const time = item.time === null || item.time === undefined ? [] : [el("time", {}, formatTime(item.time))];
    const where = el("span", { class: "where" }, `${xName} ${formatStep(item.step)}`, ...time);
    const say = () => setText(document.getElementById("said"), `Charts show ${xName} ${formatStep(item.step)}.`);
    const go = () => (moveCursor(item.step), say());
    const button = el("button", { type: "button", onclick: go, title: "Show this step in the charts" }, where, kindBadge(item.kind), said(item.title, "bdi", { class: "what" }));
    const element = el("li", { "data-kind": knownKind(item.kind) }, button);
    if (item.text) element.append(said(item.text, "p"));
    element.hidden = this.hidden.has(knownKind(item.kind));
    return element;
  }

  showFilters(items) {
    const counts = new Map();
    for (const kind of items.map((item) => knownKind(item.kind))) counts.set(kind, (counts.get(kind) || 0) + 1);
    for (const [kind, count] of counts) {
      if (!this.filters.has(kind)) {
        const button = el("button", { type: "button", class: "small filter", "aria-pressed": "true", onclick: () => this.toggle(kind) });
        this.filters.set(kind, button);
        this.bar.append(button);
      }
      setText(this.filters.get(kind), `${KINDS[kind]} ${formatStep(count)}`);
    }
    this.bar.hidden = counts.size < 2;
  }

  toggle(kind) {
    if (!this.hidden.delete(kind)) this.hidden.add(kind);
    const isShown = !this.hidden.has(kind);
    this.filters.get(kind).setAttribute("aria-pressed", String(isShown));
    for (const element of this.list.children) if (element.dataset.kind === kind) element.hidden = !isShown;
  }
}
