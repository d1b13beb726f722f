// What has happened: on a line of time, a lane for each kind, and as a list.

import { clock, gateLink, h, keyed, moment, row, setText, table } from './dom.js';
import { feed, now } from './feed.js';

const ROWS_MAX = 300;
const LANE_PX = 26;
const MARGIN_S = 5;
/** What the command shows as warnings, too. */
const WARNINGS = new Set(['outside_write', 'lease.expired', 'guardian.replaced', 'sched_ext.ejected', 'policy.rejected']);

const tone = (kind) => (WARNINGS.has(kind) ? 'warning' : 'normal');

/** Kinds that are not shown. */
const hidden = new Set();

export function events() {
  const kinds = h('div.chips');
  const lanes = h('div.lanes', { role: 'img', 'aria-label': 'Events on a line of time; the list below has them all' });
  const { node: list, body } = table('Newest first', ['time', 'kind', 'gate', 'what']);
  list.classList.add('stacked');
  const note = h('p.note');
  // Another agent counts from 1 again.
  const rows = keyed(body, (event) => `${feed.pid} ${event.seq}`, row((event) => [
    moment(event.time_unix_seconds),
    h(`span.kind.${tone(event.kind)}`, {}, event.kind),
    event.gate ? gateLink(event.gate) : '',
    event.message,
  ], ['time', '', '', 'why']));
  const chips = keyed(kinds, ([kind]) => kind, ([kind]) => {
    const count = h('span.count');
    const box = h('input', { type: 'checkbox', checked: !hidden.has(kind), onchange: () => {
      if (box.checked) hidden.delete(kind); else hidden.add(kind);
      update();
    } });
    return { node: h('label', {}, box, kind, ' ', count), update: ([, number]) => setText(count, String(number)) };
  });
  const node = h('div', {},
    h('h1', { tabindex: -1 }, 'Events'),
    h('fieldset', {}, h('legend', {}, 'Kinds shown'), kinds),
    lanes, note, list);

  let drawn = '';
  function update() {
    const counts = new Map();
    feed.events.forEach(({ kind }) => counts.set(kind, (counts.get(kind) ?? 0) + 1));
    chips([...counts].sort());
    const shown = feed.events.filter(({ kind }) => !hidden.has(kind));
    rows(shown.slice(-ROWS_MAX).reverse());
    const older = feed.lost + Math.max(0, shown.length - ROWS_MAX);
    setText(note, shown.length === 0 ? 'Nothing has happened.' : older > 0 ? `${older} earlier events are not listed.` : '');
    // The line of time moves by the second; more often is no use.
    const state = `${feed.pid} ${shown.length} ${Math.floor(now())} ${lanes.clientWidth}`;
    if (state !== drawn) drawLanes(lanes, shown);
    drawn = state;
  }
  return { node, update };
}

function drawLanes(lanes, shown) {
  const kinds = [...new Set(shown.map(({ kind }) => kind))].sort();
  const from = (shown[0]?.time_unix_seconds ?? now()) - MARGIN_S;
  const seconds = now() + MARGIN_S - from;
  const at = (time) => `${100 * (time - from) / seconds}%`;
  const rowOf = (kind) => {
    const dots = shown.filter((event) => event.kind === kind).map((event) => {
      const dot = h(`span.dot.${tone(kind)}`, { title: `${moment(event.time_unix_seconds)} ${event.message}` });
      dot.style.setProperty('left', at(event.time_unix_seconds));
      return dot;
    });
    return h('div.lane', {}, h('span.label', {}, kind), h('div.line', {}, ...dots));
  };
  const ticks = [0.12, 0.5, 0.88].map((part) => {
    const tick = h('span.tick', {}, clock(from + part * seconds));
    tick.style.setProperty('left', `${100 * part}%`);
    return tick;
  });
  lanes.replaceChildren(...kinds.map(rowOf), h('div.lane', {}, h('span.label'), h('div.line.ticks', {}, ...ticks)));
  lanes.style.setProperty('min-height', `${(kinds.length + 1) * LANE_PX}px`);
}
