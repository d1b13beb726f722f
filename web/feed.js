// What the page knows of the agent, and the one stream that keeps it so.

const HOUR_S = 3600;
/** Events that are kept here; the agent itself has up to 10,000. */
const EVENTS_MAX = 2000;
const RETRY_MS = 1000;
/** The agent sends a status every second. */
const SILENCE_MS = 10000;

export const feed = {
  /** `connecting`, `live`, `gone` (no agent), `ended` (no `tidegate web`), or `refused` with the reason. */
  link: 'connecting',
  why: '',
  /** The agent's process: another one counts events from 1 again. */
  pid: null,
  status: null,
  /** The machine by seconds, oldest first. */
  points: [],
  /** Oldest first. */
  events: [],
  lost: 0,
  /** What the agent's clock is ahead of the browser's, which may be another machine's. */
  aheadSeconds: 0,
};

const listeners = new Set();

/** Calls `listener` after each change. */
export function onChange(listener) {
  listeners.add(listener);
}

function changed() {
  listeners.forEach((listener) => listener());
}

/** The agent's time, in seconds since 1970. */
export function now() {
  return Date.now() / 1000 + feed.aheadSeconds;
}

/** An error with the agent's own words, or with those of `tidegate web` that there is no agent. */
class Refusal extends Error {
  constructor({ kind, detail, remedy }) {
    super([detail, remedy].filter(Boolean).join('; '));
    this.link = ['unreachable', 'no_answer', 'leaving'].includes(kind) ? 'gone' : 'refused';
  }
}

/** The answer to a call. */
export async function ask(path) {
  const answer = await fetch(path);
  const body = await answer.json();
  if (answer.ok) return body;
  throw new Refusal(body);
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** Follows the agent, and the next one when it is gone, for as long as the page is open. */
export async function follow() {
  for (;;) {
    try {
      await connection();
      feed.link = 'gone';
    } catch (error) {
      feed.link = error.link ?? 'gone';
      feed.why = error.message;
    }
    changed();
    await sleep(RETRY_MS);
  }
}

/**
 * One stream, to its end. It is read by `fetch`: an `EventSource` has to know every kind of event
 * beforehand, and gives up for good where an answer is an error, as it is while there is no agent.
 */
async function connection() {
  const abort = new AbortController();
  const headers = feed.pid === null ? {} : { 'last-event-id': String(lastSeq()) };
  const opened = fetch('/v1/stream?topics=events,status', { headers, signal: abort.signal });
  const answer = await opened.catch((error) => { throw Object.assign(error, { link: 'ended' }); });
  if (!answer.ok) throw new Refusal(await answer.json());
  const pid = Number(answer.headers.get('tidegate-agent-pid'));
  if (pid !== feed.pid) await meet(pid);
  await catchUp();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const silence = setTimeout(() => abort.abort(new Error('the agent says nothing')), SILENCE_MS);
    const { value, done } = await reader.read().finally(() => clearTimeout(silence));
    if (done) return;
    const blocks = (text + value).split('\n\n');
    text = blocks.pop();
    blocks.forEach(take);
    changed();
  }
}

function lastSeq() {
  return feed.events.at(-1)?.seq ?? 0;
}

/** All that another agent has to tell. */
async function meet(pid) {
  feed.events = [];
  feed.lost = 0;
  for (;;) {
    const found = await ask(`/v1/events?since=${lastSeq()}`);
    feed.lost += found.lost;
    found.events.forEach(keepEvent);
    if (found.events.length === 0) break;
  }
  feed.pid = pid;
}

/** The seconds that the page has missed. */
async function catchUp() {
  const last = feed.points.at(-1)?.time ?? 0;
  const asked = last > 0 ? `?from=${Math.floor(last) + 1}` : '';
  // Where the last point is newer than the agent's clock, nothing is missed.
  const history = await ask(`/v1/history${asked}`).catch(() => null);
  if (!history) return;
  const ahead = history.to_unix_seconds - Math.floor(Date.now() / 1000);
  // A second is the time that the answer took.
  feed.aheadSeconds = Math.abs(ahead) > 1 ? ahead : 0;
  for (const point of history.points) {
    keepPoint({
      time: point.time_unix_seconds,
      main: point.main_cpus,
      side: point.side_cpus,
      idle: point.idle_cpus,
      allowance: point.allowance_cpus,
      asked: 100 * point.headroom_ratio,
      kept: 100 * point.idle_kept_ratio,
    });
  }
}

function take(block) {
  const fields = {};
  for (const line of block.split('\n')) {
    const colon = line.indexOf(': ');
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 2);
  }
  if (fields.data === undefined) return;
  const data = JSON.parse(fields.data);
  if (fields.event === 'gap') feed.lost += data.lost ?? 0;
  else if (fields.event === 'status') takeStatus(data);
  else if (data.seq > lastSeq()) keepEvent(data);
}

function takeStatus(status) {
  feed.status = status;
  feed.link = 'live';
  // The control loop rests while nothing is limited, and nothing is measured then.
  if (status.capacity_cpus <= 0) return;
  keepPoint({
    time: now(),
    main: status.main_cpus,
    side: status.side_cpus,
    idle: status.idle_cpus,
    allowance: status.decision.allowance_cpus,
    asked: 100 * status.headroom_ratio,
    kept: 100 * status.idle_kept_ratio,
  });
}

function keepEvent(event) {
  feed.events.push(event);
  if (feed.events.length > EVENTS_MAX) feed.events.shift();
}

function keepPoint(point) {
  const { points } = feed;
  if (points.length && points.at(-1).time >= point.time) return;
  points.push(point);
  while (points[0].time < point.time - HOUR_S) points.shift();
}
