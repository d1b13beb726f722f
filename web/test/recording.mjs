// Drives the recording of `tidegate web` in a real browser, without an agent:
// `node recording.mjs URL PICTURES`. The caller serves a recording with the works `web`, `backup`
// and one whose name is markup, under the policies `bold.toml` and `shy.toml`.

import assert from 'node:assert/strict';
import { on, open, run } from './browser.mjs';

const [url, pictures] = process.argv.slice(2);
const MARKUP = '<img src=x onerror="document.title=1">';
const CLOSING = '</script><script>document.title=2</script>';
const ARMS = ['as it was', 'bold.toml', 'shy.toml'];

const served = await open();
const { page } = served;
const { text, waitForText, picture, tabTo, drawn, background, fitsNarrow } = on(page, pictures);

async function recording() {
  await page.goto(`${url}#/recording`);
  await drawn(ARMS.length);
  assert.deepEqual(await page.locator('.arms h2').allInnerTexts(), ARMS);
  assert.deepEqual(await page.locator('.arms .badge').allInnerTexts(), ['recorded', 'simulated', 'simulated']);
  await waitForText('.decision', /2026-11-27 .*, 100 s on 2 CPUs\.$/);
  await waitForText('tbody tr', /idle kept % of the machine\s*2\d\.\d/);
  await waitForText('tbody tr', /side work CPUs\s*\d\.\d\d\s*\d\.\d\d \(\d\.\d\d to \d\.\d\d\)\s*\+0\.\d\d/);
  await waitForText('tbody tr', /web\s*main\s*0\.\d\d\s*main/);
  await waitForText('tbody tr', MARKUP);
  await waitForText('tbody tr', CLOSING);
  assert.ok(await page.locator('.notes li').count() > 0, 'no assumptions');
  assert.equal(await page.locator('img').count(), 0, 'a name became markup');
  assert.equal(await page.title(), 'Recording · Tidegate');
  await picture('recording');
  // The picture of docs/recordings.md: the plots and the figures.
  const works = await page.locator('section').nth(1).boundingBox();
  await page.screenshot({ path: `${pictures}/web-recording.png`, fullPage: true, clip: { x: 0, y: 0, width: 1200, height: works.y } });
}

/** The cursor of all arms, by keys alone. */
async function keys() {
  await page.locator('#view').focus();
  await page.keyboard.press('Tab');
  assert.match(await page.evaluate(() => document.activeElement.ariaLabel), /^Time in as it was/);
  await page.keyboard.press('Home');
  const times = () => page.locator('figcaption .time').allInnerTexts();
  const first = await times();
  assert.equal(new Set(first).size, 1, `all arms tell the same time: ${first}`);
  assert.match(first[0], /^at \d\d:\d\d:\d\d$/);
  await page.keyboard.press('ArrowRight');
  assert.notDeepEqual(await times(), first);
  await page.keyboard.press('ArrowLeft');
  assert.deepEqual(await times(), first);
  assert.match(await page.evaluate(() => document.activeElement.ariaValueText), /main \d\.\d\d, side \d\.\d\d, idle \d\.\d\d/);
  assert.match(await text('.legend .figure'), /^\d\.\d\d$/);
  await page.keyboard.press('Escape');
  assert.deepEqual(await times(), ['', '', '']);
  await tabTo('As a table');
  await page.keyboard.press('Enter');
  assert.equal(await page.locator('details[open] tbody tr').count(), 12);
  await page.keyboard.press('Enter');
  // An event's button shows its time in every arm.
  const moment = await page.locator('td button').first().innerText();
  await tabTo(moment);
  await page.keyboard.press('Enter');
  assert.deepEqual(await times(), ARMS.map(() => `at ${moment}`));
}

/** Without an agent the other views say so. */
async function noAgent() {
  await page.keyboard.press('1');
  await waitForText('#absent', 'No agent runs here');
  await waitForText('#state', 'no agent runs, looking for one');
  await page.keyboard.press('5');
  await page.locator('#absent').waitFor({ state: 'hidden' });
}

async function looks() {
  const light = await background();
  await page.emulateMedia({ colorScheme: 'dark' });
  assert.notEqual(await background(), light);
  await drawn(ARMS.length);
  await picture('recording-dark');
  await page.setViewportSize({ width: 360, height: 700 });
  await page.waitForTimeout(300);
  await fitsNarrow('the recording');
  await picture('recording-narrow');
}

/** While there is no agent, the browser tells of each answer that says so. */
async function quiet() {
  assert.deepEqual(served.complaints.filter((what) => !/^Failed to load resource.*\/v1\//.test(what)), []);
}

/** How long the view takes with arms of as many points as there may be. */
async function speed() {
  const { ms, plots } = await page.evaluate(async () => {
    const { recordingView } = await import('/recording.js');
    const { name, view } = await (await fetch('/recording.json')).json();
    for (const arm of view.arms) {
      arm.points = Array.from({ length: 600 }, (_, index) => ({ ...arm.points[index % arm.points.length],
        time_unix_seconds: view.recording.from_unix_seconds + index / 5 }));
    }
    const begun = performance.now();
    document.getElementById('view').replaceChildren(recordingView(name, view));
    await new Promise((done) => { requestAnimationFrame(() => requestAnimationFrame(done)); });
    return { ms: performance.now() - begun, plots: document.querySelectorAll('canvas').length };
  });
  console.error(`three arms of 600 points: ${Math.round(ms)} ms`);
  assert.equal(plots, ARMS.length);
  assert.ok(ms < 3000, `${ms} ms`);
}

await run([recording, keys, noAgent, looks, quiet, speed]);
await served.browser.close();
