// Results: the reports of `tidegate-lab` in the folder that `tidegate web --results` was given.

import { h } from './dom.js';
import { ask } from './feed.js';
import { command } from './recorded.js';
import { measurements, report } from './report.js';

const address = (file) => `/results/${file.split('/').map(encodeURIComponent).join('/')}`;

async function text(file) {
  const answer = await fetch(address(file));
  if (answer.ok) return answer.text();
  throw new Error((await answer.json()).detail);
}

/** The view of one report, or of the first. */
export function results(name) {
  const node = h('div', {}, h('h1', { tabindex: -1 }, 'Results'));
  const say = (why) => node.append(h('p.bad', { role: 'status' }, why));
  ask('/results.json').then((found) => show(node, found, name)).catch((error) => say(error.message));
  return { node, update() {} };
}

async function show(node, found, name) {
  if (!found) return node.append(...howTo());
  const { folder, reports, pictures } = found;
  if (reports.length === 0 && pictures.length === 0) return node.append(h('p', {}, 'No report is in ', h('code', {}, folder), '.'), ...howTo());
  const chosen = [...reports, ...pictures].includes(name) ? name : reports[0] ?? pictures[0];
  const link = (one) => h('li', {}, h('a', { href: `#/results/${encodeURIComponent(one)}`, 'aria-current': one === chosen ? 'page' : undefined }, one));
  node.append(h('p.note', {}, `${reports.length} ${reports.length === 1 ? 'report' : 'reports'} in `, h('code', {}, folder)));
  node.append(h('nav', { 'aria-label': 'Reports' }, h('ul.picks', {}, ...reports.map(link), ...pictures.map(link))));
  if (pictures.includes(chosen)) return node.append(h('img.picture', { src: address(chosen), alt: `${chosen}: the reports have its figures` }));
  const [page, json] = await Promise.all([text(`${chosen}.html`), text(`${chosen}.json`).then(JSON.parse)]);
  const { title, nodes } = report(page);
  const file = (kind) => h('a', { href: address(`${chosen}.${kind}`), download: `${chosen.replaceAll('/', '-')}.${kind}` }, kind.toUpperCase());
  return node.append(h('section.report', {}, h('h2', {}, title || chosen), ...nodes,
    measurements(Array.isArray(json.rows) ? json.rows : []), h('p', {}, 'To take along: ', file('csv'), ', ', file('json'))));
}

function howTo() {
  return [
    h('p', {}, 'Shows the reports of experiments and rehearsals: plots, tables and every measurement. Write some into a folder, and serve it:'),
    command('tidegate-lab headroom --on sim --out results'),
    command('tidegate-lab sim web-server-and-encoder --out results'),
    command('tidegate web --results results'),
  ];
}
