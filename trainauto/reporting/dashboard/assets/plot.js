"use strict";
// How uPlot draws a chart, the colours of the theme, and the table of its values.

const AXIS_FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const MOST_ROWS = 200;

/** Colours of the theme in use, from the page's style sheet: a canvas knows no variables. */
function readInk() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  document.documentElement.dataset.ink = style.getPropertyValue("--theme").trim(); // for printing: canvases stay as drawn
  view.ink = {
    series: Array.from({ length: SERIES_COLOURS }, (_, index) => colour(`series-${index + 1}`)),
    marks: Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, colour(`mark-${kind}`)])),
    text: colour("muted"),
    grid: colour("grid"),
    card: colour("card"),
  };
}

/** Steps that all charts show. */
function stepRange() {
  const [first, last] = view.zoom || view.whole;
  return first < last ? [first, last] : [first - 0.5, last + 0.5];
}

function plotOptions(chart, width) {
  const { block, series } = chart;
  const isLog = chart.isLog && chart.canBeLog;
  const isWide = chart.element.classList.contains("wide");
  const range = (plot) =>
    valueRange(series, (index) => plot.series[index + 1].show, stepRange(), block.from_zero, isLog);
  return {
    width: Math.max(width, 120),
    height: isWide ? 300 : 220,
    padding: [10, 20, 0, 0],
    legend: { show: false },
    focus: { alpha: 1 },
    cursor: {
      points: { show: false },
      drag: { x: true, y: false, setScale: false },
      bind: { dblclick: () => () => zoomTo(null) },
    },
    scales: { x: { time: false, range: stepRange }, y: { distr: isLog ? 3 : 1, range } },
    axes: [stepAxis(), valueAxis(block.unit, isLog)],
    series: [{}, ...series.map((one) => lineOptions(one, chart.hidden.has(one.name)))],
    hooks: hooks(chart),
  };
}

function hooks(chart) {
  const bands = (plot) =>
    clipped(plot, () =>
      chart.series.forEach((one, index) => {
        if (one.low && one.high && plot.series[index + 1].show) drawBand(plot, one, view.ink.series[one.colour]);
      }),
    );
  let lastEvent;
  const pointed = (plot) => {
    if (plot.cursor.event === lastEvent) return; // uPlot redraws its cursor after a zoom as well: nobody moved it
    lastEvent = plot.cursor.event;
    const isInside = plot.cursor.left >= 0;
    view.pointed = isInside ? plot : null;
    const step = isInside ? plot.data[0][plot.cursor.idx] ?? null : null;
    chart.showTip(isInside ? chart.marksNear(plot.posToVal(plot.cursor.left, "x")) : []);
    if (step !== view.cursor) moveCursor(step);
  };
  const selected = (plot) => {
    const { left, width } = plot.select;
    if (width < 4) return;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    zoomTo([plot.posToVal(left, "x"), plot.posToVal(left + width, "x")]);
  };
  return {
    drawAxes: [bands],
    draw: [(plot) => drawMarks(plot, chart.marks, view.ink)],
    setCursor: [pointed],
    setSelect: [selected],
  };
}

function stepAxis() {
  return {
    stroke: () => view.ink.text,
    font: AXIS_FONT,
    size: 30,
    gap: 4,
    space: 44,
    incrs: tickSteps("count"),
    grid: { show: false },
    ticks: { stroke: () => view.ink.grid, width: 1, size: 4 },
    values: (_, values) => axisLabels(values, "count"),
  };
}

function valueAxis(unit, isLog) {
  const axis = {
    stroke: () => view.ink.text,
    font: AXIS_FONT,
    size: 66,
    gap: 6,
    space: 34,
    grid: { stroke: () => view.ink.grid, width: 1 },
    ticks: { show: false },
  };
  if (!isLog) return { ...axis, incrs: tickSteps(unit), values: (_, values) => axisLabels(values, unit) };
  const values = (_, ticks) => ticks.map((value) => formatValue(value, unit));
  return { ...axis, splits: (_plot, _index, min, max) => logTicks(min, max), filter: (_, ticks) => ticks, values };
}

/** A line with points where there are few of them; uPlot shows a value between two gaps as a point by itself. */
function lineOptions(series, isHidden) {
  const colour = () => view.ink.series[series.colour];
  const isPoints = series.style === "points";
  const few = (plot) => {
    const [start, end] = between(series.x, plot.scales.x.min, plot.scales.x.max);
    return isPoints || ((end - start) * 14 < plot.width && series.style === "line");
  };
  const options = {
    label: series.name,
    show: !isHidden,
    stroke: colour,
    width: series.style === "dash" ? 1.5 : 1.8,
    dash: series.dash,
    points: { show: few, size: isPoints ? 8 : 5, fill: isPoints ? colour : () => view.ink.card, stroke: colour, width: 1.5 },
  };
  if (isPoints) options.paths = () => null;
  if (series.style === "steps") options.paths = uPlot.paths.stepped({ align: 1 });
  return options;
}

/** Values of a chart: at most 200 steps, evenly thinned; steps of series with few values stay, as many as there is room. */
function valuesTable(block, series) {
  if (!hasValues(series)) return el("p", {}, "Nothing measured yet.");
  const data = joined(series);
  const rare = new Set(series.filter(({ x }) => x.length <= MOST_ROWS / 2).flatMap(({ x }) => x));
  const all = data[0].map((_, index) => index).filter((index) => data.slice(1).some((column) => column[index] !== undefined && column[index] !== null));
  const kept = rare.size < MOST_ROWS ? all.filter((index) => rare.has(data[0][index])) : [];
  const rest = all.length > MOST_ROWS ? thinned(all, MOST_ROWS - kept.length) : all;
  const shown = [...new Set([...kept, ...rest])].sort((one, other) => one - other);
  const columns = [xName[0].toUpperCase() + xName.slice(1), ...series.map(({ name }) => name)];
  const rows = shown.map((index) => [
    formatStep(data[0][index]),
    ...series.map((_, place) => formatValue(data[place + 1][index] ?? null, block.unit)),
  ]);
  const words = shown.length < all.length ? `${shown.length} of ${formatStep(all.length)} points, evenly thinned.` : `All ${shown.length} points.`;
  const content = { title: `Values of ${block.title}`, columns, numeric: columns.map(() => true), rows, marked: [] };
  return el("div", {}, el("p", { class: "note" }, words), tableElement(content));
}

/** At most `count` entries of a list, evenly apart, the last one among them. */
function thinned(list, count) {
  const every = list.length / count;
  return Array.from({ length: count }, (_, index) => list[Math.min(list.length - 1, Math.floor((index + 1) * every) - 1)]);
}
