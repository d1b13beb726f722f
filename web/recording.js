// A recording and what each policy makes of it, side by side.

import { arms } from './arms.js';
import { badge, clock, cpus, day, h, moment, span, table } from './dom.js';

const ROWS_MAX = 300;

/** Field, name, unit and digits. */
const FIGURES = [
  ['idle_kept_pct', 'idle kept', '% of the machine', 1],
  ['side_cpus', 'side work', 'CPUs', 2],
  ['main_cpus', 'main and all that is not side', 'CPUs', 2],
  ['main_wait_mean_us', 'main waits to run, mean', 'µs', 0],
  ['main_wait_p99_us', 'main waits to run, 99th percentile', 'µs', 0],
  ['at_tolerance_pct', 'side work at its tolerance', '% of the time', 1],
];

/** The view; `name` is the recording's file. */
export function recordingView(name, view) {
  const plots = arms(view);
  return h('div', {},
    h('h1', { tabindex: -1 }, `Recording ${name}`),
    h('p.decision', {}, about(view.recording)),
    plots.node,
    h('p.note', {}, 'Triangles on the axis of time are events. In a plot, ', h('kbd', {}, '←'), ' ', h('kbd', {}, '→'), ' move the time that all tell.'),
    figures(view.arms),
    works(view.arms),
    events(view, plots.goTo),
    h('section', {}, h('h2', {}, 'What the simulation assumes'), h('ul.notes', {}, ...view.assumptions.map((one) => h('li', {}, one)))));
}

function about({ from_unix_seconds: from, to_unix_seconds: to, cpus: online, seconds }) {
  const missing = Math.round(to - from) - seconds;
  const zone = new Intl.DateTimeFormat('en', { timeZoneName: 'short' }).formatToParts(from * 1000).find(({ type }) => type === 'timeZoneName');
  const gaps = missing > 1 ? `; ${span(missing)} in between are missing` : '';
  return `${day(from)} ${clock(from)} to ${moment(to, from)} (${zone?.value ?? 'your zone'}), ${span(seconds)} on ${online} CPUs${gaps}.`;
}

const minus = (text) => text.replace('-', '−');
const number = (value, digits) => minus((Math.abs(value) < 0.5 / 10 ** digits ? 0 : value).toFixed(digits));

function difference(figure, was, digits) {
  if (!figure || !was) return '–';
  const by = number(figure.value - was.value, digits);
  return by.startsWith('−') || Number(by) === 0 ? by : `+${by}`;
}

function figures(all) {
  const [was, ...policies] = all;
  const heads = ['figure', was.name, ...policies.flatMap((arm) => [arm.name, 'difference'])];
  const names = ['', ...heads.slice(1).map(() => 'number')];
  const { node, body } = table('In figures', heads, names);
  const cell = (figure, digits) => {
    if (!figure) return h('td.number', {}, '–');
    const isExact = number(figure.from, digits) === number(figure.to, digits);
    const interval = isExact ? null : h('span.interval', {}, ` (${number(figure.from, digits)} to ${number(figure.to, digits)})`);
    return h('td.number', {}, number(figure.value, digits), interval);
  };
  body.append(...FIGURES.map(([field, name, unit, digits]) => h('tr', {},
    h('th', { scope: 'row' }, name, h('small', {}, ` ${unit}`)),
    cell(was.figures[field], digits),
    ...policies.flatMap((arm) => [
      cell(arm.figures[field], digits),
      h('td.number', {}, difference(arm.figures[field], was.figures[field], digits)),
    ]))));
  const note = h('p.note', {}, 'Beside a simulated figure: the least and the largest of its runs. A – is not measured.');
  return h('section', {}, node, note);
}

function works(all) {
  const names = new Map();
  for (const arm of all) {
    for (const work of arm.works) names.set(work.name, Math.max(names.get(work.name) ?? 0, work.used_cpus));
  }
  const sorted = [...names].sort(([, a], [, b]) => b - a).map(([name]) => name);
  const heads = ['work', ...all.flatMap((arm) => [arm.name, 'CPUs'])];
  const { node, body } = table('Works', heads, ['path', ...all.flatMap(() => ['', 'number'])]);
  const byName = all.map((arm) => new Map(arm.works.map((work) => [work.name, work])));
  body.append(...sorted.slice(0, ROWS_MAX).map((name) => h('tr', {},
    h('th.path', { scope: 'row' }, name),
    ...byName.flatMap((found) => {
      const work = found.get(name);
      return [h('td', {}, work ? badge(work.class) : '–'), h('td.number', {}, work ? cpus(work.used_cpus) : '–')];
    }))));
  const left = sorted.length - ROWS_MAX;
  return h('section', {}, node, h('p.note', {}, left > 0 ? `${left} smaller ones are not listed.` : ''));
}

function events({ events: all, recording: { from_unix_seconds: from } }, goTo) {
  if (all.length === 0) return h('section', {}, h('h2', {}, 'Events'), h('p.note', {}, 'Nothing happened.'));
  const { node, body } = table('Events', ['time', 'kind', 'gate', 'what']);
  node.classList.add('stacked');
  body.append(...all.slice(0, ROWS_MAX).map((event) => h('tr', {},
    h('td.time', {}, h('button', { type: 'button', title: 'Show this time in the plots', onclick: () => goTo(event.time_unix_seconds) },
      moment(event.time_unix_seconds, from))),
    h('td.kind', {}, event.kind),
    h('td', {}, event.gate ?? ''),
    h('td.why', {}, event.message))));
  const left = all.length - ROWS_MAX;
  return h('section', {}, node, h('p.note', {}, left > 0 ? `${left} later events are not listed.` : ''));
}
