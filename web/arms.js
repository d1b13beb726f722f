// Use over time in each arm of a recording: the same scales, one cursor, and the events as marks.

import { axis, colour, columns, dark, drawn, withGaps } from './chart.js';
import { clock, cpus, h, setText } from './dom.js';

const HEIGHT_PX = 220;
const TABLE_ROWS = 12;
/** Points that are further apart than so many steps are not joined. */
const GAP_STEPS = 3;
const SHORT_S = 600;
const PAGE_PART = 10;
const MARK_PX = 4;
/** Half of a time below the axis. */
const RIGHT_PX = 26;

const SERIES = [
  { label: 'idle', tone: 'idle', height: (at) => at.main + at.side + at.idle, value: (at) => at.idle },
  { label: 'side', tone: 'side', height: (at) => at.main + at.side, value: (at) => at.side },
  { label: 'main', tone: 'main', height: (at) => at.main, value: (at) => at.main },
];
const ALLOWANCE = {
  label: 'side may rise to',
  tone: 'allowance',
  line: true,
  height: (at) => Math.min(at.main + at.allowance, at.main + at.side + at.idle),
  value: (at) => Math.min(at.main + at.allowance, at.main + at.side + at.idle),
};

const pointOf = (point) => ({
  time: point.time_unix_seconds,
  main: point.main_cpus,
  side: point.side_cpus,
  idle: point.idle_cpus,
  allowance: point.allowance_cpus,
});

/** The plots of all arms: `{node, goTo(time)}`. */
export function arms(view) {
  const all = view.arms.map((arm) => armPlot(arm, view, (time) => goTo(time)));
  const goTo = (time) => all.forEach((one) => one.goTo(time));
  return { node: h('div.arms', {}, ...all.map((one) => one.node)), goTo };
}

function armPlot(arm, view, goToAll) {
  const points = arm.points.map(pointOf);
  const series = points.some((point) => point.allowance !== undefined) ? [...SERIES, ALLOWANCE] : SERIES;
  const values = series.map(() => h('span.figure'));
  const swatch = (one) => h(`span.swatch.${one.tone}${one.line ? '.line' : ''}`);
  const inLegend = [...series.filter((one) => !one.line)].reverse().concat(series.filter((one) => one.line));
  const legend = h('ul.legend', {}, ...inLegend.map((one) => h('li', {}, swatch(one), `${one.label} `, values[series.indexOf(one)])));
  const time = h('span.time');
  const holder = h('div.canvas', {
    tabindex: 0, role: 'slider', 'aria-label': `Time in ${arm.name}; the table below has the figures`,
    'aria-valuemin': 0, 'aria-valuemax': Math.max(0, points.length - 1), 'aria-valuenow': 0, 'aria-valuetext': 'no time chosen',
    onkeydown: (event) => key(event),
  });
  const kind = h('span.badge', {}, arm.is_recorded ? 'recorded' : 'simulated');
  const node = h('figure', {},
    h('figcaption', {}, h('h2', {}, arm.name), kind, time, legend), holder,
    h('details', {}, h('summary', {}, 'As a table'), meansTable(arm.name, points, series, view.recording)));
  const shown = withGaps(points, GAP_STEPS * step(points));
  let chart = null;
  let chosen = null;

  function tell(index) {
    const point = shown[index];
    const isPoint = point && !point.gap;
    chosen = isPoint ? points.indexOf(point) : null;
    setText(time, isPoint ? `at ${clock(point.time)}` : '');
    series.forEach((one, nth) => setText(values[nth], isPoint ? cpus(one.value(point)) : ''));
    holder.setAttribute('aria-valuenow', chosen ?? 0);
    const figures = inLegend.map((one) => isPoint && `${one.label} ${cpus(one.value(point))}`).join(', ');
    holder.setAttribute('aria-valuetext', isPoint ? `${clock(point.time)}: ${figures} CPUs` : 'no time chosen');
  }

  function key(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const last = points.length - 1;
    const at = chosen ?? -1;
    const far = Math.ceil(points.length / PAGE_PART);
    const next = {
      ArrowRight: at + 1, ArrowLeft: at < 0 ? last : at - 1, PageDown: at + far, PageUp: at - far, Home: 0, End: last, Escape: null,
    }[event.key];
    if (next === undefined || last < 0) return;
    event.preventDefault();
    goToAll(next === null ? null : points[Math.min(Math.max(next, 0), last)].time);
  }

  function goTo(at) {
    if (!chart) return;
    const left = at === null ? -10 : chart.valToPos(at, 'x');
    chart.setCursor({ left, top: at === null ? -10 : 0 }, true, false);
  }

  function draw() {
    chart?.destroy();
    chart = new uPlot(options(view, series, holder.clientWidth, tell), columns(shown, series), holder);
  }

  new ResizeObserver(() => {
    if (holder.clientWidth === 0) return;
    if (chart) chart.setSize({ width: holder.clientWidth, height: HEIGHT_PX });
    else draw();
  }).observe(holder);
  dark.addEventListener('change', () => { if (chart) draw(); });
  return { node, goTo };
}

/** Seconds between points, as most are. */
function step(points) {
  const steps = points.slice(1).map((point, index) => point.time - points[index].time).sort((a, b) => a - b);
  return steps[Math.floor(steps.length / 2)] ?? 1;
}

/** What the plot shows, as means over a dozen spans. */
function meansTable(name, points, series, { from_unix_seconds: from, to_unix_seconds: to }) {
  const width = Math.max(to - from, 1) / TABLE_ROWS;
  const rows = Array.from({ length: TABLE_ROWS }, (_, index) => {
    const begin = from + index * width;
    const isLast = index === TABLE_ROWS - 1;
    const within = points.filter(({ time }) => time >= begin && (isLast || time < begin + width));
    const mean = (one) => within.reduce((sum, point) => sum + one.value(point), 0) / within.length;
    const cells = series.map((one) => h('td', {}, within.length ? cpus(mean(one)) : '–'));
    return h('tr', {}, h('th', { scope: 'row' }, clock(begin)), ...cells);
  });
  const heads = ['from', ...series.map((one) => one.label)].map((head) => h('th', { scope: 'col' }, head));
  return h('table.figures', {}, h('caption', {}, `${name}: CPUs, means`), h('thead', {}, h('tr', {}, ...heads)), h('tbody', {}, ...rows));
}

function options(view, series, width, tell) {
  const { from_unix_seconds: from, to_unix_seconds: to, cpus: online } = view.recording;
  const isShort = to - from < SHORT_S;
  return {
    width,
    height: HEIGHT_PX,
    padding: [8, RIGHT_PX, 0, 0],
    legend: { show: false },
    drawOrder: ['series', 'axes'],
    cursor: { sync: { key: 'recording' }, drag: { x: false, y: false }, points: { show: false }, y: false },
    scales: {
      x: { time: true, range: () => [from, Math.max(to, from + 1)] },
      y: { range: () => [0, online || 1] },
    },
    axes: [
      axis({ size: 28, space: 70, values: (_, times) => times.map((time) => clock(time, isShort)) }),
      axis({ size: 42, space: 36 }),
    ],
    series: drawn(series),
    hooks: {
      setCursor: [(chart) => tell(chart.cursor.left < 0 ? null : chart.cursor.idx)],
      draw: [(chart) => drawMarks(chart, view.events)],
    },
  };
}

/** A triangle on the axis of time, and a thin line above it, for each event. */
function drawMarks(chart, events) {
  const { ctx, bbox } = chart;
  const ratio = window.devicePixelRatio || 1;
  const marks = new Set(events.map((event) => Math.round(chart.valToPos(event.time_unix_seconds, 'x', true))));
  ctx.save();
  ctx.fillStyle = colour('text');
  for (const x of marks) {
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    const bottom = bbox.top + bbox.height;
    const size = MARK_PX * ratio;
    ctx.globalAlpha = 0.35;
    ctx.fillRect(x, bbox.top, 1, bbox.height);
    ctx.globalAlpha = 1;
    ctx.beginPath();
    ctx.moveTo(x - size, bottom + size);
    ctx.lineTo(x + size, bottom + size);
    ctx.lineTo(x, bottom - size);
    ctx.fill();
  }
  ctx.restore();
}
