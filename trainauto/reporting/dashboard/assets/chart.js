"use strict";
// A chart with its legend, marks and table. All charts of the page share their steps: one cursor, one zoom.

/** What all charts share. cursor: step or null; zoom: [first, last] step or null for all; whole: steps of the page;
 * ink: colours of the theme; pointed: the plot under the mouse, which places its cursor itself. */
const view = { cursor: null, zoom: null, whole: [0, 1], grid: [], runs: [], charts: new Set(), ink: null, pointed: null };

const seen = new IntersectionObserver((entries) => entries.forEach((entry) => entry.target.chart.setNear(entry.isIntersecting)), {
  rootMargin: "400px",
});
const sized = new ResizeObserver((entries) => entries.forEach((entry) => entry.target.chart.fit()));

class Chart {
  constructor(block) {
    this.isLog = block.axis === "log";
    this.hidden = new Set(); // names of series that a person switched off
    this.isNear = true;
    this.isStale = false;
    this.title = el("h3");
    this.readout = el("span", { class: "readout" });
    this.logButton = el("button", { type: "button", class: "small", "aria-pressed": String(this.isLog), onclick: () => this.toggleLog() }, "Log scale");
    this.resetButton = el("button", { type: "button", class: "small reset", onclick: () => zoomTo(null) }, "Whole run");
    this.tip = el("div", { class: "tip", hidden: true });
    this.frame = el("div", { class: "frame" });
    this.plotArea = el(
      "div",
      { class: "plot", role: "slider", tabindex: "0", "aria-roledescription": "chart", "aria-describedby": "keys" },
      this.frame,
    );
    this.plotArea.addEventListener("keydown", (event) => this.onKey(event));
    this.plotArea.addEventListener("blur", () => this.showTip([]));
    this.legend = el("ul", { class: "legend" });
    this.note = el("p", { class: "note" });
    this.table = el("div");
    this.fold = el("details", { class: "values", ontoggle: () => this.fillTable() }, el("summary", {}, "Values as a table"), this.table);
    const head = el("div", { class: "head" }, this.title, this.readout, this.logButton);
    const stage = el("div", { class: "stage" }, this.plotArea, this.resetButton, this.tip);
    this.element = el("article", { class: "card chart" }, head, stage, this.legend, this.note, this.fold);
    this.frame.chart = this.element.chart = this;
    view.charts.add(this);
    this.accept(block);
  }

  /** Take over a block's texts and values; what is drawn follows with refresh(). */
  accept(block) {
    this.block = block;
    this.series = ownSeries(block, view.grid, view.runs);
    const marks = (block.marks || []).map(({ x, kind, text }) => ({ x, kind: knownKind(kind), text }));
    this.marks = marks.sort((one, other) => one.x - other.x);
    const couldBeLog = this.canBeLog;
    this.canBeLog = allPositive(this.series) && hasValues(this.series);
    this.title.replaceChildren(said(block.title));
    this.note.replaceChildren(said(block.note || ""));
    this.note.hidden = !block.note;
    this.logButton.hidden = block.axis === "linear" || !this.canBeLog;
    const shape = JSON.stringify(this.series.map(({ name, style, colour, dash }) => [name, style, colour, dash]));
    const hasSameAxis = couldBeLog === this.canBeLog && hasValues(this.series) === Boolean(this.plot);
    this.isSameShape = shape === this.shape && hasSameAxis;
    if (shape !== this.shape) this.makeLegend();
    this.shape = shape;
  }

  update(block) {
    this.accept(block);
    if (!this.isSameShape) this.draw();
    else this.refresh(true);
    if (this.fold.open) this.fillTable();
  }

  makeLegend() {
    this.values = this.series.map(() => el("span", { class: "value" }));
    const items = this.series.map((one, index) => {
      const toggle = (event) => this.toggle(one.name, event.currentTarget);
      const isShown = !this.hidden.has(one.name);
      const parts = [swatch(one), said(one.name, "bdi", { class: "name", title: one.name }), this.values[index]];
      return el("li", {}, el("button", { type: "button", class: "series", "aria-pressed": String(isShown), onclick: toggle }, ...parts));
    });
    this.legend.replaceChildren(...items);
  }

  toggle(name, button) {
    if (!this.hidden.delete(name)) this.hidden.add(name);
    button.setAttribute("aria-pressed", String(!this.hidden.has(name)));
    this.plot?.batch(() => {
      this.series.forEach((one, index) => one.name === name && this.plot.setSeries(index + 1, { show: !this.hidden.has(name) }, false));
    });
  }

  toggleLog() {
    this.isLog = !this.isLog;
    this.logButton.setAttribute("aria-pressed", String(this.isLog));
    this.draw();
  }

  /** Draw anew: at first, and where series or the kind of scale changed. */
  draw(width = this.frame.clientWidth) {
    this.plot?.destroy();
    this.plot = null;
    this.isStale = false;
    if (hasValues(this.series)) {
      this.frame.replaceChildren();
      this.plot = new uPlot(plotOptions(this, width), joined(this.series), this.frame);
    } else this.frame.replaceChildren(el("p", { class: "none" }, "Nothing measured yet."));
    this.showCursor();
    this.showZoom();
    this.describe();
  }

  /** Bring the plot up to date, at once where it can be seen, else when it comes near. */
  refresh(withData = false) {
    this.hasNewData = this.hasNewData || withData;
    this.isStale = !this.isNear;
    if (this.isStale || !this.plot) return;
    if (this.hasNewData) {
      this.plot.setData(joined(this.series));
      this.describe();
    } else this.plot.setScale("x", { min: 0, max: 1 }); // the range is stepRange()'s
    this.hasNewData = false;
    this.showZoom();
    this.showCursor();
  }

  setNear(isNear) {
    this.isNear = isNear;
    if (isNear && this.isStale) this.refresh();
    else if (isNear) this.showCursor();
  }

  fit() {
    const width = this.frame.clientWidth;
    if (this.plot && width > 0 && Math.abs(width - this.plot.width) >= 1) this.plot.setSize({ width, height: this.plot.height });
  }

  describe() {
    const [first, last] = view.whole;
    this.plotArea.setAttribute("aria-label", this.series.length ? summary(this.block, this.series) : this.block.title);
    this.plotArea.setAttribute("aria-valuemin", first);
    this.plotArea.setAttribute("aria-valuemax", last);
    this.plotArea.setAttribute("aria-valuenow", view.cursor ?? last);
  }

  /** Values at the cursor, or the last ones. */
  showCursor() {
    const hasFocus = document.activeElement === this.plotArea;
    if (!this.isNear && !hasFocus) return;
    const step = view.cursor;
    setText(this.readout, step === null ? "" : `${xName} ${formatStep(step)}`);
    const texts = this.series.map((one, index) => {
      const at = step === null ? lastIndex(one) : indexAt(one, step);
      const text = at < 0 ? "–" : formatValue(one.y[at], this.block.unit);
      setText(this.values[index], text);
      return `${one.name} ${text}`;
    });
    if (hasFocus) {
      this.plotArea.setAttribute("aria-valuenow", step ?? view.whole[1]);
      this.plotArea.setAttribute("aria-valuetext", `${xName} ${formatStep(step ?? view.whole[1])}: ${texts.join(", ")}`);
    }
    if (!this.plot || this.plot === view.pointed) return;
    const left = step === null ? -10 : this.plot.valToPos(step, "x");
    this.plot.setCursor({ left, top: -10 }, false);
  }

  showZoom() {
    this.resetButton.classList.toggle("away", view.zoom === null);
  }

  /** Reasons of the marks under the cursor. */
  showTip(marks) {
    this.tip.hidden = marks.length === 0;
    if (!marks.length) return;
    const line = (mark) =>
      el("p", {}, kindBadge(mark.kind), ` at ${xName} ${formatStep(mark.x)}: `, said(mark.text));
    this.tip.replaceChildren(...marks.slice(0, 4).map(line));
    if (marks.length > 4) this.tip.append(el("p", {}, `and ${marks.length - 4} more, in the list of events`));
    const over = this.plot.over;
    const x = over.offsetLeft + this.plot.valToPos(marks[0].x, "x");
    const isRight = x > this.frame.clientWidth / 2;
    this.tip.style.left = isRight ? "auto" : `${x + 10}px`;
    this.tip.style.right = isRight ? `${this.frame.clientWidth - x + 10}px` : "auto";
  }

  marksNear(step, pixels = 6) {
    if (!this.plot || step === null) return [];
    const reach = Math.abs(this.plot.posToVal(pixels, "x") - this.plot.posToVal(0, "x"));
    const marks = this.marks.filter((mark) => Math.abs(mark.x - step) <= reach);
    return marks.sort((one, other) => Math.abs(one.x - step) - Math.abs(other.x - step));
  }

  onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const step = stepForKey(this, event);
    if (step === undefined) return;
    event.preventDefault();
    view.pointed = null; // where the mouse rests does not count now
    if (step !== null) moveCursor(step);
    this.showTip(this.marksNear(view.cursor));
  }

  fillTable() {
    if (this.fold.open) this.table.replaceChildren(valuesTable(this.block, this.series));
  }
}

/** Step that a key moves the cursor to; null where it did something else; undefined for keys of others. */
function stepForKey(chart, event) {
  const [first, last] = view.zoom || view.whole;
  const steps = chart.plot ? chart.plot.data[0] : [first];
  const at = lowerBound(steps, view.cursor ?? last);
  const by = (count) => steps[Math.min(steps.length - 1, Math.max(0, at + count))];
  const page = Math.ceil(steps.length / 10);
  const marks = chart.marks.map((mark) => mark.x);
  const next = {
    ArrowLeft: () => by(event.shiftKey ? -10 : -1), ArrowRight: () => by(event.shiftKey ? 10 : 1),
    PageUp: () => by(page), PageDown: () => by(-page), Home: () => first, End: () => last,
    m: () => marks.find((x) => x > (view.cursor ?? -1)) ?? marks[0] ?? null,
    M: () => marks.findLast((x) => x < (view.cursor ?? last + 1)) ?? marks.at(-1) ?? null,
    "+": () => zoomBy(0.5), "-": () => zoomBy(2), 0: () => zoomTo(null), Escape: () => (view.zoom ? zoomTo(null) : moveCursor(null)),
  }[event.key];
  return next && next();
}

/** Put the cursor of all charts at a step; null takes it away. */
function moveCursor(step) {
  view.cursor = step;
  if (step !== null && view.zoom && (step < view.zoom[0] || step > view.zoom[1])) zoomTo(null);
  for (const chart of view.charts) chart.showCursor();
  return null;
}

/** Show the steps of a range in all charts; null shows the whole run. */
function zoomTo(range) {
  view.zoom = range;
  for (const chart of view.charts) chart.showTip([]); // what it pointed at has moved
  for (const chart of view.charts) chart.refresh();
  for (const chart of view.charts) chart.showZoom();
  return null;
}

/** Zoom around the cursor; a factor below 1 shows less. Zooming out past the whole run shows just that. */
function zoomBy(factor) {
  const [first, last] = view.zoom || view.whole;
  const middle = view.cursor ?? (first + last) / 2;
  const range = [middle - (middle - first) * factor, middle + (last - middle) * factor];
  const isWhole = range[0] <= view.whole[0] && range[1] >= view.whole[1];
  if (range[1] - range[0] < 1) return null;
  return zoomTo(isWhole ? null : [Math.max(range[0], view.whole[0]), Math.min(range[1], view.whole[1])]);
}
