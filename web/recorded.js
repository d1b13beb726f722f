// The replay that `tidegate web --replay` was given.

import { h } from './dom.js';
import { ask } from './feed.js';
import { recordingView } from './recording.js';

/** A command line to copy. */
export const command = (line) => h('pre.command', {}, line);

export function recording() {
  const node = h('div', {}, h('h1', { tabindex: -1 }, 'Recording'));
  const show = (found) => {
    const shown = found ? recordingView(found.name, found.view) : howTo();
    const hadFocus = node.firstChild === document.activeElement;
    node.replaceChildren(...shown.childNodes);
    if (hadFocus) node.firstChild.focus();
  };
  const fail = (error) => node.replaceChildren(node.firstChild, h('p.bad', { role: 'status' }, `It cannot be read: ${error.message}`));
  // One is served for as long as the command runs.
  ask('/recording.json').then(show).catch(fail);
  return { node, update() {} };
}

function howTo() {
  return h('div', {},
    h('h1', { tabindex: -1 }, 'Recording'),
    h('p', {}, 'Shows what was recorded and what other policies would have made of it, side by side. The agent records all the time; keep a stretch, and serve it:'),
    command('tidegate recording save --last 10m --out before.tgr'),
    command('tidegate-lab replay before.tgr --policy other.toml --json > before.json'),
    command('tidegate web --replay before.json'));
}
