// The policy in force: its files, its rules, and what they do.

import { gateLink, h, setText } from './dom.js';
import { ask, feed, now } from './feed.js';

const PERIOD_MS = 5000;

export function policy() {
  const trial = h('p.trial', { role: 'timer', hidden: true });
  const refused = h('pre.bad', { hidden: true });
  const failed = h('p.bad', { role: 'status' });
  const about = h('p');
  const rules = h('div.rules');
  const node = h('div', {}, h('h1', { tabindex: -1 }, 'Policy'), failed, trial, refused, about, rules);
  let timer;
  let trialEnds = null;
  let shown = '';

  async function refresh() {
    clearTimeout(timer);
    if (!document.hidden) await ask('/v1/policy').then(show, fail);
    if (node.isConnected) timer = setTimeout(refresh, PERIOD_MS);
  }

  function fail(error) {
    setText(failed, feed.link === 'live' ? error.message : 'No agent answers; this is what it had last.');
  }

  function show(view) {
    setText(failed, '');
    trialEnds = view.trial_seconds_left === null ? null : now() + view.trial_seconds_left;
    tick();
    refused.hidden = !view.refused;
    setText(refused, view.refused ? `The files were refused, and the policy before them stays:\n${view.refused}` : '');
    // A rule that is the same keeps its nodes, and a link in it the focus.
    const rest = JSON.stringify({ ...view, trial_seconds_left: null });
    if (rest === shown) return;
    shown = rest;
    about.replaceChildren(...aboutPolicy(view));
    rules.replaceChildren(...view.rules.map(ruleCard));
  }

  function tick() {
    trial.hidden = trialEnds === null;
    if (trialEnds === null) return;
    const left = Math.max(0, Math.round(trialEnds - now()));
    trial.replaceChildren(h('strong', {}, 'On trial'), `: the policy before is in force again in ${left} s, unless `, h('code', {}, 'tidegate policy confirm'), ' keeps this one.');
  }
  return { node, start: refresh, update: tick };
}

function aboutPolicy(view) {
  const files = view.files.flatMap((file, index) => [index ? ', ' : '', h('code', {}, file)]);
  const text = [`Number ${view.generation} since the agent started, from `, ...(files.length ? files : ['no files']), '. '];
  if (view.rules.length === 0) text.push('It has no rules: gates are those that ', h('code', {}, 'tidegate run'), ' and ', h('code', {}, 'tidegate set'), ' make.');
  else if (view.watch) text.push(`What starts later: ${view.watch}.`);
  if (view.files_differ && !view.refused) text.push(' The files say something else now: see ', h('code', {}, 'tidegate policy diff'), '.');
  return text;
}

function ruleCard(rule) {
  const mode = h('span.badge', {}, rule.mode);
  const head = h('div.bar', {}, h('h2', {}, rule.name), mode, h('code.source', {}, rule.source));
  const parts = [];
  if (rule.gates.length) {
    parts.push(h('p', {}, 'Gates: ', ...rule.gates.flatMap((name, index) => [index ? ', ' : '', gateLink(name)])));
  }
  if (rule.observed.length) parts.push(h('ul.list', {}, ...rule.observed.map(observedItem)));
  if (!parts.length) parts.push(h('p.note', {}, 'It matches nothing now.'));
  return h('section.card', {}, head, ...parts);
}

function observedItem(view) {
  const writes = view.writes.map((write) => h('li', {}, h('code', {}, write.path), `: ${write.from ?? '(not there yet)'} → ${write.to}`));
  const refused = view.refused ? h('p.refused', {}, `refused: ${view.refused}`) : null;
  return h('li', {}, h('code', {}, view.target), ` would have ${view.terms}`, refused, h('ul', {}, ...writes));
}
