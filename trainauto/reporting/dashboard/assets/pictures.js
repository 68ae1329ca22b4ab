"use strict";
// Pictures over time: a slider over steps, the output between the baseline and what it should be; samples of the first batch.

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
      this.sets.set(set.name, known || new PictureSet(set, `${block.id}-${index}`));
    });
    for (const [name, set] of before) if (!this.sets.has(name)) set.element.remove();
    for (const set of this.sets.values()) if (!set.element.isConnected) this.body.append(set.element);
    this.body.classList.toggle("single", this.sets.size === 1);
    if (!block.sets.length) this.body.replaceChildren(el("p", { class: "none" }, "No pictures yet."));
    else this.body.querySelector(":scope > .none")?.remove();
  }
}

class PictureSet {
  constructor(set, id) {
    this.at = -1; // the newest
    this.slider = el("input", { type: "range", min: "0", step: "1", id: `slider-${id}`, oninput: () => this.choose(Number(this.slider.value)) });
    this.label = el("label", { for: `slider-${id}` }, "Step");
    this.place = el("output", { for: `slider-${id}`, class: "place" });
    this.score = el("span", { class: "score" });
    this.full = el("a", { target: "_blank", rel: "noopener" }, "Full size");
    this.row = el("div", { class: "pictures-row" });
    this.name = el("h4");
    const control = el("div", { class: "control" }, this.label, this.slider, this.place);
    this.element = el("section", { class: "picture-set" }, this.name, this.row, control, el("p", { class: "under" }, this.score, this.full));
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
    this.output = this.output || this.figure("");
    this.show(this.row, [
      set.baseline && this.figure(set.baseline_name || "baseline", set.baseline),
      this.output,
      set.reference && this.figure("reference", set.reference),
    ]);
    this.choose(kept < 0 ? set.steps.length - 1 : kept);
  }

  figure(caption, source) {
    const image = el("img", { alt: "", decoding: "sync" });
    if (source) image.src = source;
    const name = caption ? said(caption, "figcaption") : el("figcaption");
    if (source) image.alt = `${this.set.name}: ${caption}`;
    return el("figure", {}, image, name);
  }

  /** Replace pictures only where they changed: one that is replaced flickers. */
  show(row, figures) {
    const wanted = figures.filter(Boolean);
    const same = row.children.length === wanted.length && wanted.every((figure, index) => this.source(figure) === this.source(row.children[index]) || figure === row.children[index]);
    if (!same) row.replaceChildren(...wanted);
  }

  source(figure) {
    return figure.firstChild.src;
  }

  choose(index) {
    const { steps, images, scores, files, name } = this.set;
    this.at = index;
    this.slider.value = String(index);
    const step = `step ${formatStep(steps[index] ?? 0)}`;
    this.slider.setAttribute("aria-valuetext", `${step}${scores[index] ? `, ${scores[index]}` : ""}`);
    setText(this.place, formatStep(steps[index] ?? 0));
    this.score.replaceChildren(said(scores[index] || ""));
    const [image, caption] = this.output.children;
    if (image.src !== images[index]) image.src = images[index] || "data:,";
    image.alt = `${name}: output at ${step}`;
    setText(caption, "output");
    const link = fileLink(files[index] || "");
    this.full.hidden = link === null;
    if (link !== null) this.full.setAttribute("href", link);
  }
}

/** Samples as they were trained on: a row of pictures each. They never change. */
class Samples {
  constructor(block) {
    this.element = el("article", { class: "card pictures" }, el("h3", {}, said(block.title)), el("div", { class: "sets" }));
    this.update(block);
  }

  update(block) {
    const content = JSON.stringify(block.rows);
    if (content === this.content) return;
    this.content = content;
    this.element.lastChild.replaceChildren(...block.rows.map((row, index) => this.row(row, index)));
  }

  row(pictures, index) {
    const figures = pictures.map(([name, source]) => {
      const image = el("img", { alt: `sample ${index + 1}: ${name}`, decoding: "sync" });
      image.src = source;
      return el("figure", {}, image, said(name, "figcaption"));
    });
    return el("div", { class: "pictures-row exact" }, ...figures);
  }
}
