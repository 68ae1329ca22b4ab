"use strict";
// The page: header, figures, sections of blocks. A served page asks for newer data every second and changes in place.

const BLOCKS = { chart: Chart, table: Table, events: Events, pairs: Pairs, pictures: Pictures, samples: PictureRows, compared: PictureRows };
const TONES = { good: "✓", warn: "!", bad: "✕", neutral: "•" };
const POLL_MS = 1000;

const shown = { sections: new Map(), header: "", written: null, live: null };

/** Steps and runs that charts share. */
function shareSteps(page) {
  const charts = page.sections.flatMap(({ blocks }) => blocks.filter(({ type }) => type === "chart"));
  view.grid = page.grid;
  xName = page.x_name || "step";
  const runs = new Set(charts.flatMap(({ series }) => series.map(({ run }) => run).filter((run) => run !== undefined && run !== null)));
  view.runs = [...runs].sort((one, other) => one - other);
  const ends = [page.grid, ...charts.flatMap(({ series }) => series.map(({ x }) => x).filter((x) => x !== "grid"))].filter((x) => x.length);
  view.whole = ends.length ? [Math.min(...ends.map((x) => x[0])), Math.max(...ends.map((x) => x.at(-1)))] : [0, 1];
}

/** Title, state and headline figures. What a screen reader is told of ("live") is an element that stays. */
function showHeader(page) {
  const isLeft = shown.live === null && page.status.word === "running";
  setText(shown.written, `Written ${formatTime(page.written)}${isLeft ? " · reload for newer figures" : ""}`);
  const content = JSON.stringify([page.title, page.subtitle, page.status, page.tiles]);
  if (content === shown.header) return;
  shown.header = content;
  const { word, tone, text } = page.status;
  document.title = page.title;
  const chip = el("span", { class: `status ${tone}` }, el("span", { "aria-hidden": "true" }, TONES[tone] || "•"), said(word));
  const lines = [el("div", { class: "title" }, said(page.title, "h1"), chip)];
  if (page.subtitle) lines.push(said(page.subtitle, "p", { class: "subtitle" }));
  if (text) lines.push(said(text, "p", { class: "reason" }));
  document.getElementById("title").replaceChildren(...lines);
  document.getElementById("tiles").replaceChildren(tiles(page.tiles));
}

/** Headline figures in one row, or in two of the same length. */
function tiles(list) {
  const tile = ({ label, value, note, tone }) => {
    const sign = TONES[tone] ? [el("span", { class: "sign", "aria-hidden": "true" }, TONES[tone])] : [];
    const parts = [said(label, "dt"), el("dd", { class: "figure" }, said(value), ...sign)];
    if (note) parts.push(said(note, "dd", { class: "note" }));
    return el("div", { class: `tile ${tone || ""}` }, ...parts);
  };
  const element = el("dl", { class: "tiles" }, ...list.map(tile));
  element.style.setProperty("--columns", Math.max(3, list.length > 6 ? Math.ceil(list.length / 2) : list.length));
  return element;
}

function showNavigation(page) {
  const links = page.sections.map(({ id, title }) => el("li", {}, el("a", { href: `#section-${id}` }, said(title))));
  const nav = document.getElementById("sections");
  const content = JSON.stringify(page.sections.map(({ id, title }) => [id, title]));
  if (nav.dataset.content === content) return; // a link may have the focus
  nav.dataset.content = content;
  nav.replaceChildren(el("ul", {}, ...links));
}

/** Sections and blocks that are there stay; new ones are put in their places, others are taken away. */
function showSections(page) {
  const before = shown.sections;
  shown.sections = new Map();
  for (const section of page.sections) {
    const known = before.get(section.id) || newSection(section);
    known.title.replaceChildren(said(section.title));
    setText(known.lead, section.lead || "");
    known.lead.hidden = !section.lead;
    showBlocks(known, section.blocks);
    shown.sections.set(section.id, known);
  }
  for (const [id, { element }] of before) if (!shown.sections.has(id)) element.remove();
  arrange(document.getElementById("main"), [...shown.sections.values()].map(({ element }) => element));
}

function newSection({ id }) {
  const title = el("h2", { id: `section-${id}` });
  const lead = el("p", { class: "lead", dir: "auto" });
  const body = el("div", { class: "blocks" });
  const element = el("section", { "aria-labelledby": `section-${id}` }, title, lead, body);
  return { title, lead, body, element, blocks: new Map() };
}

function showBlocks(section, blocks) {
  const before = section.blocks;
  section.blocks = new Map();
  for (const block of blocks) {
    if (!Object.hasOwn(BLOCKS, block.type)) continue; // of a newer version: what is known is shown
    const Kind = BLOCKS[block.type];
    const known = before.get(block.id);
    const isKnown = known instanceof Kind;
    if (isKnown) known.update(block);
    section.blocks.set(block.id, isKnown ? known : new Kind(block));
  }
  for (const [id, block] of before) if (section.blocks.get(id) !== block) takeAway(block);
  arrange(section.body, [...section.blocks.values()].map(({ element }) => element));
  widen(section.blocks);
}

function takeAway(block) {
  block.element.remove();
  view.charts.delete(block);
  if (block.plot) block.plot.destroy();
}

/** Put elements in order without moving those that stand right: one that moves loses the focus. */
function arrange(parent, elements) {
  elements.forEach((element, index) => {
    if (parent.children[index] !== element) parent.insertBefore(element, parent.children[index] || null);
  });
}

/** Charts and lists of pairs stand in twos; of an odd number in a row the first is as wide as the page. */
function widen(blocks) {
  const halves = [];
  for (const block of [...blocks.values(), null]) {
    if (halves.length && halves[0].constructor !== block?.constructor) {
      halves.splice(0).forEach(({ element }, index, all) => element.classList.toggle("wide", index === 0 && all.length % 2 === 1));
    }
    if (block instanceof Chart || block instanceof Pairs) halves.push(block);
  }
}

/** Draw charts that have no plot yet. Widths are read first: to read one after a change lays out the page anew. */
function drawCharts() {
  const charts = [...view.charts].filter((chart) => !chart.plot);
  const widths = charts.map((chart) => chart.frame.clientWidth);
  charts.forEach((chart, index) => chart.draw(widths[index]));
  for (const chart of charts) {
    sized.observe(chart.frame);
    seen.observe(chart.element);
  }
}

function showPage(page) {
  shareSteps(page);
  showHeader(page);
  showNavigation(page);
  showSections(page);
  drawCharts();
}

function showKeys() {
  const key = (name) => el("kbd", {}, name);
  const text = el("p", { id: "keys" });
  text.append(
    "In a chart: drag to zoom, double click to see the whole run. With the keyboard: ", key("←"), " ", key("→"), " move the cursor (",
    key("Shift"), " by ten), ", key("Home"), " ", key("End"), " to its ends, ", key("m"), " ", key("M"),
    " to the next and last event, ", key("+"), " ", key("−"), " zoom, ", key("0"), " shows the whole run. ",
    "In an enlarged picture: ", key("←"), " ", key("→"), " go to other pictures; on its divider they move that, ", key("Home"), " ", key("End"),
    " show one picture whole; ", key("Esc"), " closes it.",
  );
  document.getElementById("foot").append(text);
}

/** Ask the server for newer data, again and again; an answer of 304 says that there are none. */
function follow() {
  let tag = "";
  shown.live = el("span", { class: "live", role: "status" }, "live");
  shown.written.after(" ", shown.live);
  const ask = async () => {
    const answer = await fetch("data.json", { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} });
    if (answer.status === 304) return "";
    const page = await answer.json();
    if (page.error) return page.error; // a log that cannot be read
    tag = answer.headers.get("ETag") || "";
    showPage(page);
    return "";
  };
  const turn = async () => {
    let wrong = "";
    try {
      if (!document.hidden) wrong = await ask();
    } catch {
      wrong = "no answer from the server";
    }
    setText(shown.live, wrong.slice(0, 300) || "live");
    shown.live.classList.toggle("lost", wrong !== "");
    setTimeout(turn, POLL_MS);
  };
  turn();
}

function start() {
  readInk();
  shown.written = document.getElementById("written").firstChild;
  const isServed = location.protocol === "http:" || location.protocol === "https:";
  showKeys();
  if (isServed) follow();
  showPage(JSON.parse(document.getElementById("page").textContent));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readInk();
    for (const chart of view.charts) chart.plot?.redraw(false);
  });
  // Milliseconds from the opening of the page until everything is drawn; plots draw in microtasks, which have run by then.
  setTimeout(() => (document.documentElement.dataset.ready = String(Math.round(performance.now()))));
}

start();
