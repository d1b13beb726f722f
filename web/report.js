// A report of `tidegate-lab`: what its page has, drawn as this page draws.

import { h, table } from './dom.js';

const SVG = 'http://www.w3.org/2000/svg';
/** Of a drawing, what is taken over: shapes and text that look some way, and nothing that loads or runs. */
const SHAPES = new Set(['svg', 'g', 'rect', 'circle', 'line', 'polyline', 'polygon', 'path', 'text', 'tspan']);
const LOOKS = new Set(['viewBox', 'width', 'height', 'x', 'y', 'x1', 'y1', 'x2', 'y2', 'cx', 'cy', 'r', 'rx', 'd', 'dx', 'dy', 'points', 'transform',
  'fill', 'opacity', 'stroke', 'stroke-width', 'stroke-dasharray', 'text-anchor', 'font-size', 'font-weight']);
const ROWS_MAX = 500;

/** The report as nodes, from the page that was written of it. */
export function report(page) {
  // Its styles are not ours to have.
  const plain = page.replace(/<style>[^]*?<\/style>/, '');
  const { body } = new DOMParser().parseFromString(plain, 'text/html');
  const nodes = [];
  let title = '';
  let part = null;
  const open = (name) => { title = name; part = null; };
  for (const one of body.children) {
    if (one.matches('h2')) open(one.textContent);
    else if (one.matches('p.machine')) nodes.push(h('p.note', {}, one.textContent));
    else if (one.matches('p.note')) nodes.push(h('p.note', {}, one.textContent));
    else if (one.querySelector('table')) nodes.push(tableOf(title, one.querySelector('table')));
    else if (one.matches('p.see, div')) {
      if (!part) nodes.push(part = h('figure', {}, h('figcaption', {}, h('h3', {}, title))));
      addTo(part, one, title);
    }
  }
  return { title: body.querySelector('h1')?.textContent ?? '', nodes };
}

function addTo(figure, one, title) {
  if (one.matches('p.see')) figure.append(h('p.note', {}, one.textContent));
  const svg = one.querySelector('svg');
  if (svg) {
    const drawing = copied(svg);
    drawing.setAttribute('role', 'img');
    drawing.setAttribute('aria-label', `${title}; the tables have the figures`);
    figure.append(h('div.scroll', { tabindex: 0, role: 'region', 'aria-label': title }, drawing));
  }
}

function copied(from) {
  const node = document.createElementNS(SVG, from.localName);
  for (const { name, value } of from.attributes) {
    if (LOOKS.has(name)) node.setAttribute(name, value);
  }
  if (from.localName === 'svg' && !node.hasAttribute('viewBox')) {
    node.setAttribute('viewBox', `0 0 ${Number(from.getAttribute('width')) || 860} ${Number(from.getAttribute('height')) || 360}`);
  }
  for (const child of from.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) node.append(child.textContent);
    else if (SHAPES.has(child.localName)) node.append(copied(child));
  }
  return node;
}

function tableOf(title, from) {
  const [heads, ...rows] = from.rows;
  const texts = (row) => [...row.cells].map((cell) => cell.textContent);
  const { node, body } = table(title, texts(heads), [...(rows[0]?.cells ?? [])].map((cell) => (cell.matches('.n') ? 'number' : '')));
  const tone = (cell) => (cell.matches('.n') ? 'td.number' : cell.matches('.missed') ? 'td.missed' : 'td');
  body.append(...rows.slice(0, ROWS_MAX).map((row) => h('tr', {}, ...[...row.cells].map((cell) => h(tone(cell), {}, cell.textContent)))));
  return node;
}

/** A series is too long for a cell. */
function valueText(value) {
  if (value === null || value === undefined) return '–';
  if (Array.isArray(value) && value.length > 3) return `${value.length} values`;
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** Every measurement that the report's JSON has: a column for each name that any row has. */
export function measurements(rows) {
  const columns = [...new Set(rows.flatMap(Object.keys))];
  const isNumber = (column) => rows.some((row) => typeof row[column] === 'number');
  const names = columns.map((column) => (isNumber(column) ? 'number' : ''));
  const { node, body } = table('Every measurement', columns.map((column) => column.replaceAll('_', ' ')), names);
  body.append(...rows.slice(0, ROWS_MAX).map((row) => h('tr', {},
    ...columns.map((column, index) => h(names[index] ? 'td.number' : 'td', {}, valueText(row[column]))))));
  const left = rows.length - ROWS_MAX;
  return h('details', {}, h('summary', {}, `All ${rows.length} measurements`), node, h('p.note', {}, left > 0 ? `${left} more are in the CSV.` : ''));
}
