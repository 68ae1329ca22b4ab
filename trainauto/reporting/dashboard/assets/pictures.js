"use strict";
// Pictures at 100 %: over time with a slider over steps, of several runs side by side, and of the first batch.

const WIDEST_PX = 320; // what a crop may take of the page

/** One crop in a row of views, {name, note, source} each. A pixel of a picture is 1, 2, 3 ... of the page; a click enlarges it. */
class CropRow {
  constructor(siblings) {
    this.siblings = siblings; // returns the rows that the enlarged view goes through
    this.element = el("div", { class: "pictures-row" });
  }

  /** Change what has changed: a picture that is replaced flickers. */
  show(title, note, views) {
    Object.assign(this, { title, note, views });
    const figures = this.element.children;
    while (figures.length > views.length) this.element.lastChild.remove();
    while (figures.length < views.length) this.element.append(this.figure(figures.length));
    this.element.style.setProperty("--views", views.length);
    views.forEach((view, index) => {
      const [button, caption] = figures[index].children;
      const image = button.firstChild;
      if (image.src !== view.source) image.src = view.source;
      image.alt = `${title}: ${viewText(view)}`;
      caption.replaceChildren(said(view.name, "b"), ...(view.note ? [said(view.note, "p")] : []));
    });
  }

  figure(index) {
    const image = el("img", { alt: "", decoding: "sync", onload: () => this.fit() });
    const open = () => enlarge(this.siblings(), this, index);
    const button = el("button", { type: "button", class: "crop", title: "Enlarge", "aria-haspopup": "dialog", onclick: open }, image);
    return el("figure", {}, button, el("figcaption"));
  }

  /** All as wide as the largest: beside a picture of 192 px, one of 48 px has pixels four times as large. */
  fit() {
    const images = [...this.element.querySelectorAll("img")];
    const side = (image) => Math.max(image.naturalWidth, image.naturalHeight);
    const largest = Math.max(...images.map(side));
    const wanted = largest * Math.max(1, Math.floor(WIDEST_PX / largest));
    for (const image of images.filter(side)) {
      const times = Math.max(1, Math.round(wanted / side(image)));
      image.style.width = `${image.naturalWidth * times}px`;
      image.classList.toggle("exact", times > 1);
    }
  }
}

class Pictures {
  constructor(block) {
    this.title = el("h3");
    this.sets = new Map(); // by name, so that a slider stays where a person left it
    this.body = el("div", { class: "sets" });
    this.element = el("article", { class: "card pictures" }, this.title, this.body);
    this.update(block);
  }

  update(block) {
    this.title.replaceChildren(said(block.title));
    const before = this.sets;
    this.sets = new Map();
    block.sets.forEach((set, index) => {
      const known = before.get(set.name);
      if (known) known.update(set);
      this.sets.set(set.name, known || new PictureSet(set, `${block.id}-${index}`, () => [...this.sets.values()].map(({ row }) => row)));
    });
    for (const [name, set] of before) if (!this.sets.has(name)) set.element.remove();
    for (const set of this.sets.values()) if (!set.element.isConnected) this.body.append(set.element);
    if (!block.sets.length) this.body.replaceChildren(el("p", { class: "none" }, "No pictures yet."));
    else this.body.querySelector(":scope > .none")?.remove();
  }
}

class PictureSet {
  constructor(set, id, siblings) {
    this.at = -1; // the newest
    this.slider = el("input", { type: "range", min: "0", step: "1", id: `slider-${id}`, oninput: () => this.choose(Number(this.slider.value)) });
    this.label = el("label", { for: `slider-${id}` }, "Step");
    this.place = el("output", { for: `slider-${id}`, class: "place" });
    this.score = el("span", { class: "score" });
    this.full = el("a", { target: "_blank", rel: "noopener" }, "Full size");
    this.row = new CropRow(siblings);
    this.name = el("h4");
    const control = el("div", { class: "control" }, this.label, this.slider, this.place);
    const under = el("p", { class: "under" }, this.score, this.full);
    this.element = el("section", { class: "picture-set" }, this.name, this.row.element, control, under);
    this.update(set);
  }

  update(set) {
    const wasNewest = this.at < 0 || this.at === this.set.steps.length - 1;
    const step = wasNewest ? null : this.set.steps[this.at];
    this.set = set;
    this.name.replaceChildren(said(set.name));
    const kept = step === null ? -1 : set.steps.indexOf(step);
    this.slider.max = String(set.steps.length - 1);
    this.slider.disabled = set.steps.length < 2;
    this.choose(kept < 0 ? set.steps.length - 1 : kept);
  }

  choose(index) {
    const { steps, images, scores, files, name, baseline, baseline_name: baselineName, reference } = this.set;
    this.at = index;
    this.slider.value = String(index);
    const step = `step ${formatStep(steps[index] ?? 0)}`;
    const score = scores[index] || "";
    const known = [step, score].filter(Boolean).join(", ");
    this.slider.setAttribute("aria-valuetext", known);
    setText(this.place, formatStep(steps[index] ?? 0));
    this.score.replaceChildren(said(score));
    const views = [
      { name: baselineName || "baseline", source: baseline },
      { name: "output", note: step, source: images[index] || "data:," },
      { name: "reference", source: reference },
    ];
    this.row.show(name, known, views.filter(({ source }) => source));
    const link = fileLink(files[index] || "");
    this.full.hidden = link === null;
    if (link !== null) this.full.setAttribute("href", link);
  }
}

/** Rows that no slider changes: crops of several runs side by side, and samples of the first batch. */
class PictureRows {
  constructor(block) {
    this.title = el("h3");
    this.note = el("p", { class: "note" });
    this.body = el("div", { class: "sets" });
    this.element = el("article", { class: "card pictures" }, this.title, this.note, this.body);
    this.update(block);
  }

  update(block) {
    const content = JSON.stringify(block);
    if (content === this.content) return;
    this.content = content;
    this.element.classList.toggle("small-rows", block.type === "samples");
    this.title.replaceChildren(said(block.title));
    this.note.replaceChildren(said(block.note || ""));
    this.note.hidden = !block.note;
    const rows = block.rows.map(() => new CropRow(() => rows));
    const sets = rows.map((row, index) => {
      const name = block.names?.[index];
      const views = block.rows[index].map(([called, source, note]) => ({ name: called, note, source }));
      const known = views.filter(({ note }) => note).map((view) => `${view.name}: ${view.note}`);
      row.show(name ?? `Sample ${index + 1}`, known.join("; "), views);
      return el("section", { class: "picture-set" }, ...(name ? [said(name, "h4")] : []), row.element);
    });
    this.body.replaceChildren(...sets);
  }
}
