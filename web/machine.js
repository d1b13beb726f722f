// The machine: who uses its CPUs, now and over the last hour, and the gates.

import { badge, cpus, gateLink, h, keyed, percent, row, setText, span, table } from './dom.js';
import { feed, now } from './feed.js';
import { RANGES, plot, range } from './plot.js';

/** More are found by the filter. */
const GATES_MAX = 200;

const online = () => feed.status?.cpus ?? 1;

/** The tolerance counts even where main leaves less. */
const ceiling = (at) => Math.min(at.main + at.allowance, at.main + at.side + at.idle);

const use = {
  title: 'CPU use',
  unit: 'CPUs',
  digits: 2,
  top: online,
  series: [
    { label: 'idle', tone: 'idle', height: (at) => at.main + at.side + at.idle, value: (at) => at.idle },
    { label: 'side', tone: 'side', height: (at) => at.main + at.side, value: (at) => at.side },
    { label: 'main', tone: 'main', height: (at) => at.main, value: (at) => at.main },
    { label: 'side may rise to', tone: 'allowance', line: true, height: ceiling, value: ceiling },
  ],
};

const allowed = {
  title: 'Side work and its allowance',
  unit: 'CPUs',
  digits: 2,
  top: online,
  series: [
    { label: 'side', tone: 'side', height: (at) => at.side, value: (at) => at.side },
    { label: 'allowance', tone: 'allowance', line: true, height: (at) => at.allowance, value: (at) => at.allowance },
  ],
};

const headroom = {
  title: 'Headroom',
  unit: '% of the machine',
  digits: 1,
  top: () => 100,
  series: [
    { label: 'idle kept', tone: 'idle', height: (at) => at.kept, value: (at) => at.kept },
    { label: 'asked', tone: 'text', line: true, dash: true, height: (at) => at.asked, value: (at) => at.asked },
  ],
};

/** A figure with its name, and a word on it. */
function tile(name, tone) {
  const value = h('p.value');
  const note = h('p.note');
  const node = h('div.tile', {}, h('p', {}, tone ? h(`span.swatch.${tone}`) : null, name), value, note);
  return { node, tell: (figure, about) => { setText(value, figure); setText(note, about); } };
}

export function machine() {
  const tiles = { main: tile('main', 'main'), side: tile('side', 'side'), idle: tile('idle', 'idle'), headroom: tile('headroom'), reclaim: tile('reclaim') };
  const decision = h('p.decision.capital');
  const plots = [use, allowed, headroom].map(plot);
  const boxes = RANGES.map(([seconds]) => h('input', { type: 'radio', name: 'range', value: seconds,
    onchange: () => { Object.assign(range, { seconds, isChosen: true }); update(); } }));
  const ranges = h('fieldset', {}, h('legend', {}, 'Time shown'), ...RANGES.map(([, label], index) => h('label', {}, boxes[index], label)));
  const gates = gateTable();
  const agent = h('dl.facts');
  const node = h('div', {},
    h('h1', { tabindex: -1 }, 'Machine'),
    decision,
    h('div.tiles', {}, ...Object.values(tiles).map((one) => one.node)),
    ranges,
    h('div.plots', {}, ...plots.map((one) => one.node)),
    gates.node,
    h('details', {}, h('summary', {}, 'The agent'), agent));

  function update() {
    if (!range.isChosen) range.seconds = shortestRange();
    boxes.forEach((box) => { box.checked = Number(box.value) === range.seconds; });
    plots.forEach((one) => one.update(feed.points));
    const { status } = feed;
    if (!status) return;
    tellTiles(tiles, status);
    setText(decision, status.decision.sentence);
    gates.update(status.gates);
    facts(agent, agentFacts(status));
  }
  return { node, update };
}

/** That which has room for all points. */
function shortestRange() {
  const seconds = now() - (feed.points[0]?.time ?? now());
  return (RANGES.find(([room]) => seconds <= room) ?? RANGES.at(-1))[0];
}

/** A share of the machine in CPUs. */
function ofMachine(status, ratio) {
  return `${cpus(ratio * (status.capacity_cpus || status.cpus))} CPUs`;
}

function tellTiles(tiles, status) {
  if (status.capacity_cpus <= 0) {
    for (const one of ['main', 'side', 'idle']) tiles[one].tell('–', 'not measured yet');
  } else {
    tiles.main.tell(cpus(status.main_cpus), `of ${cpus(status.capacity_cpus)} CPUs`);
    tiles.side.tell(cpus(status.side_cpus), `of ${cpus(status.decision.allowance_cpus)} allowed`);
    tiles.idle.tell(cpus(status.idle_cpus), `${percent(100 * status.idle_kept_ratio)} of the machine`);
  }
  tiles.headroom.tell(percent(100 * status.headroom_ratio), `${ofMachine(status, status.headroom_ratio)} asked by ${status.headroom_from}`);
  const reclaim = status.reclaim_ratio;
  tiles.reclaim.tell(reclaim === null ? '–' : percent(100 * reclaim), reclaim === null ? 'no side work lately' : 'of what main left');
}

function gateTable() {
  const names = ['', '', 'number', 'number', '', 'number', 'number'];
  const { node, body } = table('Gates', ['gate', 'class', 'CPUs', 'allowance', 'binds', 'throttled', 'processes'], names);
  const filter = h('input', { type: 'search', placeholder: 'Filter by name', 'aria-label': 'Filter gates by name', oninput: () => show() });
  const more = h('p.note');
  const rows = keyed(body, (gate) => `${gate.class} ${gate.name}`, row((gate) => [
    gateLink(gate.name),
    badge(gate.class),
    cpus(gate.usage_cpus),
    gate.allowance_cpus === null ? '–' : cpus(gate.allowance_cpus),
    gate.held.limit,
    gate.nr_periods > 0 ? percent(100 * gate.nr_throttled / gate.nr_periods) : '–',
    String(gate.processes),
  ], names));
  let gates = [];
  function show() {
    const wanted = gates.filter((gate) => gate.name.includes(filter.value));
    wanted.sort((a, b) => a.class.localeCompare(b.class) || a.name.localeCompare(b.name));
    rows(wanted.slice(0, GATES_MAX));
    const hidden = wanted.length - Math.min(wanted.length, GATES_MAX);
    filter.hidden = gates.length < 10;
    setText(more, hidden > 0 ? `${hidden} more; filter by name` : gates.length === 0 ? 'No gates: nothing is limited.' : '');
  }
  return { node: h('section', {}, filter, node, more), update: (all) => { gates = all; show(); } };
}

function agentFacts(status) {
  const { control, objective } = status;
  return {
    version: `tidegate ${status.version}, agent ${status.pid} (${status.mode}), up ${span(status.uptime_seconds)}`,
    machine: `${status.cpus} CPUs, ${cpus(status.capacity_cpus)} available (steal ${percent(100 * status.steal_ratio)}, ${cpus(status.steal_ratio * status.cpus)} CPUs)`,
    objective: objective && `${objective.from}: ${(100 * objective.extra_ratio).toFixed(0)} % (${ofMachine(status, objective.extra_ratio)}) of headroom found for it (${objective.state})`,
    engine: status.sched_ext?.off ? `${status.engine} (${status.sched_ext.off})` : status.engine,
    sensing: status.sensing_note ? `${status.sensing} (${status.sensing_note})` : status.sensing,
    cpuset: status.cpuset,
    loop: `every ${(control.period_us / 1000).toFixed(0)} ms; late ${control.late_p50_us.toFixed(0)} µs (p99 ${control.late_p99_us.toFixed(0)}, `
      + `max ${control.late_max_us.toFixed(0)}); ${control.step_cost_us.toFixed(0)} µs a step; agent ${control.agent_cpus.toFixed(4)} CPUs over ${control.agent_window_seconds.toFixed(0)} s`,
    writes: `${status.quota_writes_per_second.toFixed(1)} quota writes a second, ${status.writes_total} writes in all`,
    guardian: status.guardian_pid
      ? `${status.guardian_pid}, acts after ${status.lease_seconds.toFixed(1)} s without a sign of the agent`
      : 'not running: if the agent died, side work would keep its last limit',
  };
}

/** A list of names and texts, of which those that are there are shown. */
export function facts(node, named) {
  const there = Object.entries(named).filter(([, text]) => text);
  const texts = there.flatMap(([name, text]) => [name, text]);
  if (node.children.length !== texts.length) {
    node.replaceChildren(...texts.map((_, index) => h(index % 2 ? 'dd' : 'dt')));
  }
  texts.forEach((text, index) => setText(node.children[index], text));
}
