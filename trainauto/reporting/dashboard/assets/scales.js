"use strict";
// Ranges and ticks of axes, bands and marks: what is drawn on a canvas beside the lines themselves.

const POWERS_OF_TWO = Array.from({ length: 60 }, (_, exponent) => 2 ** exponent);
const CLOCK_STEPS = [60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 432000, 864000];
const DECIMAL_STEPS = Array.from({ length: 40 }, (_, exponent) => exponent - 20).flatMap((exponent) =>
  [1, 2, 5].map((digit) => Number(`${digit}e${exponent}`)),
);

/** Distances between ticks that read well: 4 GiB, 5 min, 0.02; whole ones where only whole values can be. */
function tickSteps(unit) {
  if (unit === "bytes") return POWERS_OF_TWO;
  if (unit === "count") return DECIMAL_STEPS.filter((step) => step >= 1);
  if (unit === "seconds") return [...DECIMAL_STEPS.filter((step) => step < 60), ...CLOCK_STEPS];
  return DECIMAL_STEPS;
}

/** Ticks of a logarithmic axis: powers of ten over wide ranges, with 2 and 5 or plain steps over narrow ones. */
function logTicks(min, max) {
  const ratio = max / min;
  if (ratio < 4) {
    const step = DECIMAL_STEPS.find((one) => (max - min) / one <= 5);
    const ticks = [];
    for (let value = Math.ceil(min / step) * step; value <= max; value += step) ticks.push(Number(value.toPrecision(6)));
    return ticks;
  }
  const every = Math.max(1, Math.ceil(Math.log10(ratio) / 6));
  const digits = ratio < 60 ? [1, 2, 5] : ratio < 2000 ? [1, 3] : [1];
  const ticks = [];
  for (let exponent = Math.floor(Math.log10(min)); exponent <= Math.log10(max); exponent += every) {
    for (const digit of digits) {
      const value = Number(`${digit}e${exponent}`);
      if (value >= min && value <= max) ticks.push(value);
    }
  }
  const lowest = oneDigitAbove(min); // what a rate decays to is read off, too
  if (Math.log((ticks[0] ?? max) / lowest) > Math.log(ratio) / 10) ticks.unshift(lowest);
  return ticks;
}

/** The least number of one digit that is not below another: 0.00006 for 0.000052. */
function oneDigitAbove(value) {
  const power = Math.floor(Math.log10(value));
  return Number(`${Math.ceil(Number((value / 10 ** power).toPrecision(6)))}e${power}`);
}

/** Range of the value axis: what the lines and bands in view need, with room above and below. */
function valueRange(series, isShown, [from, to], fromZero, isLog) {
  let least = Infinity;
  let most = -Infinity;
  const include = (list, start, end) => {
    for (let index = start; index < end; index += 1) {
      const value = list[index];
      if (value === null || value === undefined) continue;
      if (value < least) least = value;
      if (value > most) most = value;
    }
  };
  series.forEach((one, index) => {
    if (!isShown(index)) return;
    const [start, end] = between(one.x, from, to);
    for (const list of [one.y, one.low, one.high]) if (list) include(list, start, end);
  });
  if (least === Infinity) return isLog ? [1, 10] : [0, 1];
  if (isLog) return [least / 1.15, most * 1.15];
  const room = (most - least) * 0.06 || Math.abs(most) * 0.1 || 1;
  if (fromZero && least >= 0) return [0, most + room];
  return [least >= 0 && least < room ? 0 : least - room, most + room];
}

/** Least and greatest value of each bucket, as a light band behind the line. */
function drawBand(plot, series, colour) {
  const { ctx } = plot;
  const [start, end] = between(series.x, plot.scales.x.min, plot.scales.x.max);
  const at = (value, scale) => plot.valToPos(value, scale, true);
  ctx.fillStyle = colour;
  ctx.globalAlpha = 0.2;
  let index = start;
  while (index < end) {
    while (index < end && series.low[index] === null) index += 1;
    const first = index;
    ctx.beginPath();
    for (; index < end && series.low[index] !== null; index += 1) ctx.lineTo(at(series.x[index], "x"), at(series.high[index], "y"));
    for (let back = index - 1; back >= first; back -= 1) ctx.lineTo(at(series.x[back], "x"), at(series.low[back], "y"));
    ctx.fill();
  }
  ctx.globalAlpha = 1;
}

const MARK_DASHES = { plan: [2, 3], oom: [], rate: [8, 3], resume: [6, 4], rollback: [6, 2, 2, 2], end: [], stop: [], fail: [], note: [1, 4] };

/** Vertical lines at what happened, a small flag at the top of each. */
function drawMarks(plot, marks, ink) {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  const lastAt = {};
  let flags = { x: -99, below: 0 };
  for (const mark of marks) {
    if (mark.x < plot.scales.x.min || mark.x > plot.scales.x.max) continue;
    const x = Math.round(plot.valToPos(mark.x, "x", true));
    if (x - (lastAt[mark.kind] ?? -9) < 2 * ratio) continue; // a hundred lines on top of each other are one
    lastAt[mark.kind] = x;
    ctx.strokeStyle = ctx.fillStyle = ink.marks[mark.kind];
    ctx.lineWidth = ratio;
    ctx.setLineDash(MARK_DASHES[mark.kind].map((length) => length * ratio));
    ctx.globalAlpha = 0.65;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.globalAlpha = 1;
    flags = { x, below: x - flags.x < 6 * ratio ? (flags.below + 1) % 4 : 0 }; // of a stop and a resume both are seen
    const top = bbox.top + flags.below * 7 * ratio;
    ctx.beginPath();
    ctx.moveTo(x - 4 * ratio, top);
    ctx.lineTo(x + 4 * ratio, top);
    ctx.lineTo(x, top + 6 * ratio);
    ctx.fill();
  }
  ctx.setLineDash([]);
}

/** Draw within the frame of the plot only. */
function clipped(plot, draw) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  draw();
  ctx.restore();
}
