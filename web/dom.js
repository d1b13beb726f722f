// Elements, lists that keep their nodes, and figures as people read them.

/** An element: `h('td.number', {title: 'x'}, 'text', child)`. Text stays text: names of gates may hold markup. */
export function h(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split('.');
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(' ');
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== false) node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...children.filter((child) => child !== undefined && child !== null));
  return node;
}

/** Sets a text only where it is another: a screen reader repeats what is written again. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Keeps the children of `parent` to a list. Nodes are kept by key, so that a focused link stays
 * focused while figures change:
 * `make(item)` gives `{node, update(item)}`.
 */
export function keyed(parent, key, make) {
  const rows = new Map();
  return (items) => {
    const keys = new Set(items.map(key));
    for (const [old, row] of rows) {
      if (keys.has(old)) continue;
      row.node.remove();
      rows.delete(old);
    }
    items.forEach((item, index) => {
      let row = rows.get(key(item));
      if (!row) {
        row = make(item);
        rows.set(key(item), row);
      }
      row.update?.(item);
      const there = parent.children[index];
      if (there !== row.node) parent.insertBefore(row.node, there ?? null);
    });
  };
}

/** A table row for [`keyed`]: `cells(item)` gives texts or nodes, and `names` the classes of its columns. */
export function row(cells, names = []) {
  return (first) => {
    const tds = cells(first).map((_, index) => h(names[index] ? `td.${names[index]}` : 'td'));
    const update = (item) => cells(item).forEach((cell, index) => {
      if (typeof cell === 'string') setText(tds[index], cell);
      else if (!tds[index].firstChild) tds[index].append(cell);
    });
    return { node: h('tr', {}, ...tds), update };
  };
}

/** A table that scrolls sideways where the window is narrow. */
export function table(caption, heads, names = []) {
  const cells = heads.map((head, index) => h(names[index] ? `th.${names[index]}` : 'th', { scope: 'col' }, head));
  const body = h('tbody');
  const whole = h('table', {}, h('caption', {}, caption), h('thead', {}, h('tr', {}, ...cells)), body);
  return { node: h('div.scroll', { tabindex: 0, role: 'region', 'aria-label': caption }, whole), body };
}

/** A link to a gate's view. */
export function gateLink(name) {
  return h('a', { href: `#/gate/${encodeURIComponent(name)}` }, name);
}

/** The class of a gate, in the colour that it has everywhere. */
export function badge(name) {
  const known = ['main', 'side'].includes(name) ? name : 'neutral';
  return h(`span.badge.${known}`, {}, name);
}

export function cpus(amount) {
  if (amount === null) return 'unknown';
  // Not -0.00, and with a minus as wide as a digit.
  return (Math.abs(amount) < 0.005 ? 0 : amount).toFixed(2).replace('-', '−');
}

export function percent(amount) {
  return `${amount.toFixed(1)} %`;
}

/** A length of time, as `tidegate status` says it. */
export function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  if (whole < 120) return `${whole} s`;
  if (whole < 7200) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 172800) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} days`;
}

const two = (number) => String(number).padStart(2, '0');

/** A time of day in the reader's zone. */
export function clock(unixSeconds, withSeconds = true) {
  const time = new Date(unixSeconds * 1000);
  const minutes = `${two(time.getHours())}:${two(time.getMinutes())}`;
  return withSeconds ? `${minutes}:${two(time.getSeconds())}` : minutes;
}

/** A date in the reader's zone. */
export function day(unixSeconds) {
  const time = new Date(unixSeconds * 1000);
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
}

/** A time of day, with the date where that is not the one of `other`: of today, if nothing else is said. */
export function moment(unixSeconds, other = Date.now() / 1000) {
  const date = day(unixSeconds);
  return date === day(other) ? clock(unixSeconds) : `${date} ${clock(unixSeconds)}`;
}
