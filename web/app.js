// The page: which view is shown, the keys, and what is around every view.

import { h, keyed, setText } from './dom.js';
import { events } from './events.js';
import { feed, follow, onChange } from './feed.js';
import { gate } from './gate.js';
import { machine } from './machine.js';
import { policy } from './policy.js';
import { recording } from './recorded.js';

const VIEWS = { machine, gate, events, policy, recording };
const NAMES = Object.keys(VIEWS);
/** The view that needs no agent. */
const OF_FILE = 'recording';
/** The view of one thing, which the rest of the address names. */
const OF_ONE = 'gate';

const main = document.getElementById('view');
const state = document.getElementById('state');
const absent = document.getElementById('absent');
const measuring = document.getElementById('measuring');
const help = document.getElementById('help');
const links = [...document.querySelectorAll('header nav a')];
const alerts = keyed(document.getElementById('alerts'), (alert) => alert, (alert) => ({ node: h('li', {}, alert) }));

/** Views that are kept, with what was chosen in them. */
const kept = {};
let view = { update() {} };
let isOfFile = false;

/** Shows the view that the address names: `#/gate/NAME`. */
function route() {
  const [, name, rest] = location.hash.split('/');
  const chosen = NAMES.includes(name) ? name : NAMES[0];
  const about = decoded(rest ?? '');
  isOfFile = chosen === OF_FILE;
  if (chosen === OF_ONE) {
    view = VIEWS[chosen](about);
    // The link leads back to the last one that was looked at.
    if (about) links[NAMES.indexOf(chosen)].href = location.hash;
  } else {
    kept[chosen] ??= VIEWS[chosen]();
    view = kept[chosen];
  }
  main.replaceChildren(view.node);
  links.forEach((link, index) => (NAMES[index] === chosen ? link.setAttribute('aria-current', 'page') : link.removeAttribute('aria-current')));
  document.title = `${about || links[NAMES.indexOf(chosen)].textContent} · Tidegate`;
  view.start?.();
  update();
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function update() {
  tellState();
  absent.hidden = isOfFile || feed.link !== 'gone' || feed.status !== null;
  alerts(feed.status?.alerts ?? []);
  measuring.hidden = !feed.status?.measuring;
  setText(measuring, feed.status?.measuring ? `Measuring what side work costs main: ${feed.status.measuring.sentence}.` : '');
  view.update();
}

function tellState() {
  const words = {
    connecting: 'connecting',
    live: `live: agent ${feed.pid}`,
    gone: feed.pid === null ? 'no agent runs, looking for one' : 'agent gone, looking for the next',
    ended: 'tidegate web has ended; start it again',
    refused: feed.why,
  };
  setText(state, words[feed.link]);
  // Nothing is wrong where there never was an agent.
  state.className = feed.link === 'gone' && feed.pid === null ? 'connecting' : feed.link;
}

function key(event) {
  const typing = event.target.closest('input[type=search], select, textarea');
  if (typing || event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key === '?') {
    help.showModal();
  } else if (!help.open && links[event.key - 1]) {
    links[event.key - 1].click();
  }
}

document.addEventListener('keydown', key);
document.getElementById('help-button').addEventListener('click', () => help.showModal());
window.addEventListener('hashchange', () => {
  route();
  // Where a reader of the screen goes on.
  main.querySelector('h1').focus();
  window.scrollTo(0, 0);
});
onChange(update);
route();
follow();
