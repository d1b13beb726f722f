// Drives the page of `tidegate web` in a real browser: `node page.mjs URL PICTURES`. The caller runs an agent with the gates `encode` and
// `web`, a rule on trial and an alert; where this prints `next agent`, it stops that agent and starts one with the gate `second`.

import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';

const [url, pictures] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });
const page = await browser.newPage({ viewport: { width: 1200, height: 900 }, colorScheme: 'light' });
page.setDefaultTimeout(10000);

/** Everything that the browser complains about. */
const complaints = [];
page.on('pageerror', (error) => complaints.push(error.message));
page.on('console', (message) => {
  if (['error', 'warning'].includes(message.type())) complaints.push(`${message.text()} ${message.location().url}`);
});
await page.exposeFunction('complain', (what) => complaints.push(what));
await page.addInitScript(() => document.addEventListener('securitypolicyviolation', (event) => (
  window.complain(`policy: ${event.violatedDirective} ${event.blockedURI}`))));

const text = (selector) => page.locator(selector).first().innerText();
const waitForText = (selector, wanted) => page.locator(selector).filter({ hasText: wanted }).first().waitFor();
const picture = (name) => page.screenshot({ path: `${pictures}/${name}.png`, fullPage: true });
const focused = () => page.evaluate(() => document.activeElement.innerText || document.activeElement.value || '');

/** Goes from one control to the next until one says `wanted`. */
async function tabTo(wanted) {
  for (let steps = 0; steps < 60; steps += 1) {
    await page.keyboard.press('Tab');
    if ((await focused()) === wanted) return;
  }
  assert.fail(`Tab never comes to ${wanted}`);
}

async function machine() {
  await page.goto(url);
  await waitForText('#state', /^live: agent \d+$/);
  await waitForText('#alerts li', 'there is no API over TCP');
  for (const name of ['encode', 'web']) await waitForText('tbody a', name);
  for (const name of ['main', 'side', 'idle']) {
    const tile = page.locator('.tile').filter({ hasText: name }).first();
    await tile.locator('.value').filter({ hasText: /^\d+\.\d\d$/ }).waitFor();
  }
  // Areas and lines have more than grid lines have.
  await page.waitForFunction(() => [...document.querySelectorAll('canvas')].length === 3);
  await page.waitForFunction(() => [...document.querySelectorAll('canvas')].every((canvas) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let opaque = 0;
    for (let at = 3; at < data.length; at += 4) opaque += data[at] === 255;
    return opaque > 100;
  }));
  await page.locator('summary').first().click();
  await waitForText('table.figures tbody tr:last-child td:last-child', /^\d+\.\d\d$/);
  await page.locator('summary').first().click();
  await picture('machine');
}

async function gate() {
  await page.locator('#view').focus();
  await tabTo('encode');
  await page.keyboard.press('Enter');
  await waitForText('.waterfall tr.total', '= side work may use');
  assert.equal(await focused(), 'encode', 'the heading has the focus');
  const explained = await (await page.request.get(`${url}v1/explain?target=gate:encode`)).json();
  assert.equal(explained.gate.command, undefined, 'command lines are not passed on');
  const capacity = explained.sum[0].cpus.toFixed(2);
  await waitForText('.waterfall tbody tr:first-child .number', capacity);
  await waitForText('table tr', /headroom\s*20%\s*run flag/);
  assert.match(await text('.decision'), /^encode uses \d/);
  assert.match(await text('.binds'), /^Binds: \w+: /);
  const widths = await page.locator('.segment').evaluateAll((all) => all.map((one) => one.getBoundingClientRect().width));
  assert.ok(widths[0] > 100, `the capacity's bar is ${widths[0]} wide`);
  await picture('gate');
}

async function events() {
  await page.keyboard.press('3');
  await waitForText('tbody tr', /gate\.created\s*encode/);
  assert.ok(await page.locator('.dot').count() >= 3);
  const before = await page.locator('tbody tr').count();
  await page.keyboard.press('Tab');
  await page.keyboard.press('Space');
  await page.waitForFunction((count) => document.querySelectorAll('tbody tr').length < count, before);
  await page.keyboard.press('Space');
  await page.waitForFunction((count) => document.querySelectorAll('tbody tr').length >= count, before);
  await picture('events');
}

async function policy() {
  await page.keyboard.press('4');
  await waitForText('.card h2', 'nightly');
  assert.match(await text('.card .source'), /10-nightly\.toml:\d+/);
  await waitForText('.trial', /in 5\d\d s/);
  const left = await text('.trial');
  await page.waitForFunction((old) => document.querySelector('.trial').innerText !== old, left);
  await picture('policy');
}

async function help() {
  await page.keyboard.press('?');
  assert.ok(await page.locator('dialog').isVisible());
  await page.keyboard.press('Escape');
  assert.ok(!await page.locator('dialog').isVisible());
  await page.keyboard.press('1');
  await waitForText('h1', 'Machine');
}

async function looks() {
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await ground();
  await page.emulateMedia({ colorScheme: 'dark' });
  assert.notEqual(await ground(), light);
  await picture('machine-dark');
  await page.setViewportSize({ width: 360, height: 700 });
  for (const key of ['1', '2', '3', '4']) {
    await page.keyboard.press(key);
    await page.waitForTimeout(200);
    const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
    assert.ok(over <= 0, `view ${key} is ${over} too wide`);
    if (key === '2') await picture('gate-narrow');
  }
  await page.keyboard.press('1');
}

async function nextAgent() {
  const first = await text('#state');
  assert.deepEqual(complaints, []);
  console.log('next agent');
  await waitForText('#state', 'agent gone, looking for the next');
  await waitForText('#state', /^live/);
  assert.notEqual(await text('#state'), first);
  await waitForText('tbody a', 'second');
  await page.keyboard.press('3');
  await waitForText('tbody tr', /gate\.created\s*second/);
  // While there is no agent, the browser tells of each answer that says so.
  const others = complaints.filter((what) => !/^Failed to load resource.*\/v1\//.test(what) && !/ERR_INCOMPLETE_CHUNKED/.test(what));
  assert.deepEqual(others, []);
}

for (const part of [machine, gate, events, policy, help, looks, nextAgent]) {
  const started = Date.now();
  await part();
  console.error(`${part.name}: ${Date.now() - started} ms`);
}
await browser.close();
