// One gate: the sum that leads from the machine's capacity to what the gate may use, and what
// binds.

import { badge, cpus, h, keyed, percent, row, setText, span, table } from './dom.js';
import { ask, feed } from './feed.js';
import { facts } from './machine.js';

const PERIOD_MS = 2000;

export function gate(name) {
  if (!name) return choose();
  const heading = h('h1', { tabindex: -1 }, name);
  const summary = h('p.decision');
  const held = h('p.binds');
  const failed = h('p.bad', { role: 'status' });
  const sum = waterfall();
  const users = userTable();
  const terms = termTable();
  const writes = writeTable();
  const notes = h('ul.notes');
  const counts = h('dl.facts');
  const found = h('div', { hidden: true }, summary, held, sum.node,
    h('div.columns', {}, terms.node, h('div', {}, h('section', {}, h('h2', {}, 'The gate'), counts), users.node)),
    writes.node, notes);
  const others = picker(name);
  const node = h('div', {}, h('div.bar', {}, heading, others.node), failed, found);
  let timer;

  async function refresh() {
    clearTimeout(timer);
    // Where the page is hidden, it asks for nothing.
    if (!document.hidden) await ask(`/v1/explain?target=${encodeURIComponent(`gate:${name}`)}`).then(show, fail);
    if (node.isConnected) timer = setTimeout(refresh, PERIOD_MS);
  }

  function fail(error) {
    // Figures of a gate that has ended would be taken for its own.
    if (feed.link === 'live') found.hidden = true;
    setText(failed, feed.link === 'live' ? error.message : 'No agent answers; what is below is what it said last.');
  }

  function show(view) {
    found.hidden = false;
    setText(failed, '');
    setText(summary, view.summary);
    const { limit, meaning } = view.gate.held;
    held.replaceChildren('Binds: ', h('strong', {}, limit), `: ${meaning}`);
    sum.update(view);
    users.update(view);
    terms.update(view.gate.terms);
    writes.update(view.writes);
    notes.replaceChildren(...view.gate.notes.map((note) => h('li', {}, note)));
    facts(counts, gateFacts(view.gate));
  }
  return { node, start: refresh, update: others.update };
}

/** Without a name: the only gate, or a choice. */
function choose() {
  const heading = h('h1', { tabindex: -1 }, 'Gate');
  const note = h('p');
  const list = h('ul.list');
  const links = keyed(list, (one) => one.name, (one) => ({
    node: h('li', {}, h('a', { href: `#/gate/${encodeURIComponent(one.name)}` }, one.name), ' ', badge(one.class)),
  }));
  function update() {
    const gates = feed.status?.gates ?? [];
    if (gates.length === 1) location.replace(`#/gate/${encodeURIComponent(gates[0].name)}`);
    setText(note, gates.length ? 'Choose a gate:' : 'There is no gate: nothing is limited.');
    links(gates);
  }
  return { node: h('div', {}, heading, note, list), update };
}

function picker(name) {
  const node = h('select', { 'aria-label': 'Another gate', onchange: () => { location.hash = `#/gate/${encodeURIComponent(node.value)}`; } });
  let shown = '';
  function update() {
    const names = (feed.status?.gates ?? []).map((one) => one.name);
    if (!names.includes(name)) names.unshift(name);
    // An open list does not change under the one who reads it.
    if (names.join('\n') === shown || document.activeElement === node) return;
    shown = names.join('\n');
    node.replaceChildren(...names.map((one) => h('option', { selected: one === name }, one)));
  }
  return { node, update };
}

/** The sum, line by line, each with a bar on the machine's CPUs; below it, what is used. */
function waterfall() {
  const names = ['', 'track', 'number', 'why'];
  const { node, body } = table('From the capacity to the allowance', ['', 'CPUs of the machine', 'CPUs', 'from'], names);
  node.classList.add('stacked', 'waterfall');
  const show = keyed(body, (line) => line.key, (first) => {
    const bar = h(`span.segment.${first.tone}`);
    const number = h('td.number');
    const why = h('td.why');
    const head = h('th', { scope: 'row' }, first.what);
    const update = (line) => {
      bar.style.setProperty('left', `${line.from * 100}%`);
      bar.style.setProperty('width', `${(line.to - line.from) * 100}%`);
      setText(number, cpus(line.cpus));
      setText(why, line.why);
    };
    return { node: h(`tr.${first.kind}`, {}, head, h('td.track', {}, h('div', {}, bar)), number, why), update };
  });
  return { node, update: (view) => show(bars(view)) };
}

const TONES = { headroom: 'idle', 'main and everything else': 'main', capacity: 'capacity', 'main\'s own': 'capacity' };

/** Lines with the ends of their bars, as parts of the machine; none of an agent that is older than they are. `+` and `-` go on where the line before ended. */
export function bars(view) {
  const whole = view.status.capacity_cpus || view.status.cpus;
  const part = (amount) => Math.min(1, Math.max(0, amount / whole));
  const bar = (a, b) => ({ from: part(Math.min(a, b)), to: part(Math.max(a, b)) });
  let level = 0;
  const lines = (view.sum ?? []).map(({ what, cpus: amount, why }, index) => {
    const word = what.replace(/^[-+=] /, '').trim();
    const line = { key: `${index} ${what}`, what: what.replace(/^- /, '− ').trim(), cpus: amount, why, kind: 'step', tone: TONES[word] ?? 'capacity' };
    if (what.startsWith('- ') || what.startsWith('+ ')) {
      const before = level;
      level += amount;
      return { ...line, ...bar(before, level) };
    }
    if (what.startsWith('= ')) return { ...line, ...bar(0, amount), kind: 'total', tone: 'allowance' };
    // A limit beside the sum, or a part of the line before.
    if (what.startsWith(' ')) return { ...line, ...bar(0, amount), kind: 'limit', tone: 'limit' };
    level = amount;
    return { ...line, ...bar(0, amount) };
  });
  const { gate, status } = view;
  const used = (what, amount, why, tone) => lines.push({ key: what, what, cpus: amount, why, kind: 'used', tone, ...bar(0, amount) });
  if (gate.class === 'side') used('all side work uses', status.side_cpus, 'over the last second', 'side');
  if (gate.usage_cpus !== null) used('this gate uses', gate.usage_cpus, 'over the last second', gate.class === 'side' ? 'side' : 'main');
  return lines;
}

function userTable() {
  const names = ['', '', 'number'];
  const { node, body } = table('CPU users', ['who', 'class', 'CPUs'], names);
  const rows = keyed(body, (user) => `${user.class} ${user.who}`, row((user) => [user.who, badge(user.class), cpus(user.usage_cpus)], names));
  return { node, update: (view) => rows(view.users.slice(0, 8)) };
}

/** What was asked for first, then the defaults. */
function termTable() {
  const { node, body } = table('Terms', ['term', 'value', 'from', 'instead of']);
  const make = row((term) => [term.name, term.value, term.source, term.overrode.join(', ')]);
  const rows = keyed(body, (term) => term.name, make);
  const isDefault = (term) => term.source === 'default';
  function update(terms) {
    const sorted = [...terms].sort((a, b) => isDefault(a) - isDefault(b));
    rows(sorted);
    sorted.forEach((term, index) => body.children[index].classList.toggle('default', isDefault(term)));
  }
  return { node, update };
}

function writeTable() {
  const names = ['number', 'path', 'value', 'value', 'value'];
  const { node, body } = table('Last writes to kernel files', ['ago', 'file', 'value', 'before', 'why'], names);
  const make = row((write) => [span(write.ago_seconds), write.path, write.value, write.was ?? '', write.reason], names);
  const none = h('p.note');
  function update(writes) {
    // Writes have no names of their own, and nothing in a row can have the focus.
    body.replaceChildren(...writes.map((write) => {
      const made = make(write);
      made.update(write);
      return made.node;
    }));
    setText(none, writes.length ? '' : 'Nothing was written for this gate lately.');
  }
  return { node: h('section', {}, node, none), update };
}

function gateFacts(gate) {
  const { sched_ext, latency, cap } = gate;
  const held = sched_ext?.cap;
  return {
    class: gate.class,
    target: gate.target,
    group: gate.cgroup,
    rule: gate.rule,
    processes: String(gate.processes),
    age: span(gate.age_seconds),
    'CPU in all': gate.used_seconds === null ? 'unknown' : span(gate.used_seconds),
    throttled: gate.nr_periods > 0 ? `${gate.nr_throttled} of ${gate.nr_periods} periods, ${gate.throttled_seconds.toFixed(2)} s` : null,
    bursts: gate.nr_bursts > 0 ? `${gate.nr_bursts} periods, ${(gate.burst_us / 1000).toFixed(1)} ms of saved quota` : null,
    'soft cap': cap ? `${cap.soft_cpus} CPUs, in the background for ${percent(100 * cap.background_ratio)} of its time` : null,
    cap: held ? `held back ${held.throttles} times, ${held.throttled_seconds.toFixed(2)} s` : null,
    waits: sched_ext?.wakeups ? `mean ${sched_ext.delay_mean_us.toFixed(0)} µs, p99 ${sched_ext.delay_p99_us.toFixed(0)} µs, longest ${sched_ext.delay_longest_us.toFixed(0)} µs` : null,
    latency: latency ? `hint ${latency.hint}: ${latency.how}` : null,
  };
}
