// Plots over time by uPlot, each with its legend and a table of the same figures.

import { axis, columns, dark, drawn, withGaps } from './chart.js';
import { clock, h, setText } from './dom.js';
import { now } from './feed.js';

/** Points that are further apart are not joined: nothing was measured between them. */
const GAP_S = 5;
const TABLE_ROWS = 12;
const HEIGHT_PX = 200;

/** What all plots show, in seconds up to now. */
export const RANGES = [[300, '5 min'], [900, '15 min'], [3600, '1 hour']];
export const range = { seconds: 3600, isChosen: false };

/**
 * A plot. Each of `series` has a `label`, a `tone` (a colour of the style sheet), `height(point)`
 * to draw at, and `value(point)` to tell; `line` draws it as a line over the areas. They are drawn
 * in their order, so that of areas on top of each other the highest comes first. The legend has
 * them from the lowest on, and then the lines.
 */
export function plot({ title, unit, digits, series, top }) {
  const holder = h('div.canvas', { role: 'img', 'aria-label': `${title}; the table below has the figures` });
  const values = series.map(() => h('span.figure'));
  const entry = (one) => h('li', {}, h(`span.swatch.${one.tone}${one.line ? '.line' : ''}`), `${one.label} `, values[series.indexOf(one)]);
  const isLine = (one) => Boolean(one.line);
  const legend = h('ul.legend', {}, ...[...series].reverse().sort((a, b) => isLine(a) - isLine(b)).map(entry));
  const time = h('span.time');
  const body = h('tbody');
  const heads = ['from', ...series.map((one) => one.label)].map((head) => h('th', { scope: 'col' }, head));
  const details = h('details', { ontoggle: () => fillTable() },
    h('summary', {}, 'As a table'),
    h('table.figures', {}, h('caption', {}, `${title}, ${unit}, means`), h('thead', {}, h('tr', {}, ...heads)), body));
  const node = h('figure', {}, h('figcaption', {}, h('h2', {}, title), h('small', {}, unit), time, legend), holder, details);
  let points = [];
  let chart = null;

  function tell(index) {
    const point = points[index] ?? points.at(-1);
    setText(time, points[index] ? `at ${clock(point.time)}` : '');
    series.forEach((one, nth) => setText(values[nth], point && !point.gap ? one.value(point).toFixed(digits) : '–'));
  }

  function fillTable() {
    if (!details.open) return;
    const step = range.seconds / TABLE_ROWS;
    const end = now();
    const rows = Array.from({ length: TABLE_ROWS }, (_, index) => {
      const from = end - (TABLE_ROWS - index) * step;
      const within = points.filter((point) => !point.gap && point.time >= from && point.time < from + step);
      const mean = (one) => within.reduce((sum, point) => sum + one.value(point), 0) / within.length;
      const cells = series.map((one) => h('td', {}, within.length ? mean(one).toFixed(digits) : '–'));
      return h('tr', {}, h('th', { scope: 'row' }, clock(from)), ...cells);
    });
    body.replaceChildren(...rows);
  }

  function draw() {
    chart?.destroy();
    chart = new uPlot(options(series, top, holder.clientWidth, tell), columns(points, series), holder);
  }

  new ResizeObserver(() => {
    if (chart && holder.clientWidth > 0) chart.setSize({ width: holder.clientWidth, height: HEIGHT_PX });
  }).observe(holder);
  dark.addEventListener('change', () => { if (chart) draw(); });

  function update(all) {
    const from = now() - range.seconds;
    points = withGaps(all.filter((point) => point.time >= from), GAP_S);
    if (!chart) draw();
    else chart.setData(columns(points, series));
    if (chart.cursor.idx === null || chart.cursor.left < 0) tell(null);
    fillTable();
  }

  return { node, update };
}

function options(series, top, width, tell) {
  return {
    width,
    height: HEIGHT_PX,
    padding: [8, 8, 0, 0],
    legend: { show: false },
    // Grid lines are seen through no area.
    drawOrder: ['series', 'axes'],
    cursor: { sync: { key: 'time' }, drag: { x: false, y: false }, points: { show: false }, y: false },
    scales: {
      x: { time: true, range: () => [now() - range.seconds, now()] },
      y: { range: (_, __, max) => [0, top?.() || Math.max(max * 1.1, 0.1)] },
    },
    axes: [
      axis({ size: 28, space: 70, values: (_, times) => times.map((time) => clock(time, range.seconds < 600)) }),
      axis({ size: 42, space: 36 }),
    ],
    series: drawn(series),
    hooks: { setCursor: [(chart) => tell(chart.cursor.left < 0 ? null : chart.cursor.idx)] },
  };
}
