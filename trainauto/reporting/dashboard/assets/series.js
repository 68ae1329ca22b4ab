"use strict";
// Series of a chart: their points, colours and dashes, values at a step, and what one sentence says of them.

const SERIES_COLOURS = 8; // as many as page.css defines
const DASHES = [[], [10, 4], [4, 3], [12, 3, 2, 3], [2, 3], [16, 4], [8, 3, 2, 3, 2, 3], [6, 2]];
const LIMIT_DASHES = [[6, 5], [2, 4], [12, 5, 2, 5], [16, 6]]; // of limits and targets: never mistaken for what was measured

/** Series of a block with lists in place of "grid", a colour (a number from 0) and a dash.
 * In a comparison both follow the run, so that a run looks the same in every chart. */
function ownSeries(block, grid, runs) {
  let limits = 0;
  let lines = 0;
  return block.series.map((series, index) => {
    const ofRun = series.run === undefined || series.run === null ? -1 : runs.indexOf(series.run);
    const place = ofRun >= 0 ? ofRun : index;
    const dashes = series.style === "dash" ? LIMIT_DASHES : DASHES;
    const turn = series.style === "dash" ? limits++ : lines++;
    return {
      name: series.name,
      style: series.style,
      x: series.x === "grid" ? grid : series.x,
      y: series.y,
      low: series.low || null,
      high: series.high || null,
      colour: place % SERIES_COLOURS,
      dash: series.style === "points" ? [] : dashes[(ofRun >= 0 && dashes === DASHES ? ofRun : turn) % dashes.length],
    };
  });
}

/** Columns for uPlot: all steps, then the values of each series. undefined = not of this series, null = a gap in it. */
function joined(series) {
  const first = series[0].x;
  if (series.every(({ x }) => x === first)) return [first, ...series.map(({ y }) => y)];
  return uPlot.join(series.map(({ x, y }) => [x, y]));
}

/** Index of the first number that is not below `value`, in a list that ascends. */
function lowerBound(list, value) {
  let from = 0;
  let to = list.length;
  while (from < to) {
    const middle = (from + to) >> 1;
    if (list[middle] < value) from = middle + 1;
    else to = middle;
  }
  return from;
}

/** Indices [from, to) of points between two steps, one more on either side where there is one. */
function between(list, min, max) {
  return [Math.max(0, lowerBound(list, min) - 1), Math.min(list.length, lowerBound(list, max) + 1)];
}

/** Index of the value that holds at a step: the last one measured until then; -1 before the first and well past the last. */
function indexAt(series, step) {
  const { x, y } = series;
  let index = lowerBound(x, step);
  if (x[index] !== step) index -= 1;
  if (index < 0) return -1;
  if (index === x.length - 1 && series.style !== "steps" && series.style !== "dash") {
    const apart = x.length > 1 ? (x[index] - x[0]) / index : 0;
    if (step - x[index] > apart) return -1;
  }
  return y[index] === null ? -1 : index;
}

/** Index of the last value that was measured; -1 where nothing was. */
function lastIndex(series) {
  let index = series.y.length - 1;
  while (index >= 0 && series.y[index] === null) index -= 1;
  return index;
}

function hasValues(series) {
  return series.some((one) => lastIndex(one) >= 0);
}

/** Whether a logarithmic scale can show everything: values and bands above 0. */
function allPositive(series) {
  const positive = (list) => list === null || list.every((value) => value === null || value > 0);
  return series.every(({ y, low }) => positive(y) && positive(low));
}

/** What a chart shows, in a sentence for those who do not see it. */
function summary(block, series) {
  const parts = series.slice(0, 4).map((one) => {
    const last = lastIndex(one);
    if (last < 0) return `${one.name}: nothing measured`;
    const [least, most] = extent(one);
    const show = (value) => formatValue(value, block.unit);
    return `${one.name}: last ${show(one.y[last])} at ${xName} ${formatStep(one.x[last])}, lowest ${show(least)}, highest ${show(most)}`;
  });
  if (series.length > 4) parts.push(`${series.length - 4} more series`);
  return `${block.title}. ${parts.join("; ")}.`;
}

function extent(series) {
  let least = Infinity;
  let most = -Infinity;
  for (const value of series.y) {
    if (value === null) continue;
    if (value < least) least = value;
    if (value > most) most = value;
  }
  return [least, most];
}

/** A short piece of the line, for the legend. */
function swatch(series) {
  const make = (tag, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };
  const svg = make("svg", { class: `swatch ink-${series.colour + 1}`, viewBox: "0 0 26 10", "aria-hidden": "true" });
  if (series.style === "points") svg.append(make("circle", { cx: 13, cy: 5, r: 4, fill: "currentColor" }));
  else {
    const dash = series.dash.join(" ");
    const path = series.style === "steps" ? "M0 8H9V2H17V6H26" : "M0 5H26";
    svg.append(make("path", { d: path, fill: "none", stroke: "currentColor", "stroke-width": 2.4, "stroke-dasharray": dash }));
  }
  return svg;
}
