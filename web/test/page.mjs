// Drives the page of `tidegate web` in a real browser: `node page.mjs URL PICTURES`. The caller
// runs an agent with the gates `encode` and `web`, a rule on trial and an alert; where this prints
// `next agent`, it stops that agent and starts one with the gate `second`.

import assert from 'node:assert/strict';
import { on, open, run } from './browser.mjs';

const [url, pictures] = process.argv.slice(2);
const { browser, page, complaints } = await open();
const { text, waitForText, picture, focused, tabTo, drawn, background, fitsNarrow } = on(page, pictures);

async function machine() {
  await page.goto(url);
  await waitForText('#state', /^live: agent \d+$/);
  await waitForText('#alerts li', 'there is no API over TCP');
  for (const name of ['encode', 'web']) await waitForText('tbody a', name);
  for (const name of ['main', 'side', 'idle']) {
    const tile = page.locator('.tile').filter({ hasText: name }).first();
    await tile.locator('.value').filter({ hasText: /^\d+\.\d\d$/ }).waitFor();
  }
  await drawn(3);
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
  // What other guests take of the machine changes from second to second: both are asked again.
  await page.waitForFunction(async () => {
    const { sum } = await (await fetch('v1/explain?target=gate:encode')).json();
    const shown = document.querySelector('.waterfall tbody tr:first-child .number').innerText;
    return shown.includes(sum[0].cpus.toFixed(2));
  }, undefined, { polling: 200 });
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

async function howTo() {
  await page.keyboard.press('5');
  await waitForText('pre', 'tidegate recording save --last 10m --out before.tgr');
}

async function help() {
  await page.keyboard.press('?');
  await page.locator('dialog').waitFor();
  await page.keyboard.press('Escape');
  await page.locator('dialog').waitFor({ state: 'hidden' });
  await page.keyboard.press('1');
  await waitForText('h1', 'Machine');
}

async function looks() {
  const light = await background();
  await page.emulateMedia({ colorScheme: 'dark' });
  assert.notEqual(await background(), light);
  await picture('machine-dark');
  await page.setViewportSize({ width: 360, height: 700 });
  for (const key of ['1', '2', '3', '4', '5']) {
    await page.keyboard.press(key);
    await page.waitForTimeout(200);
    await fitsNarrow(`view ${key}`);
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

await run([machine, gate, events, policy, howTo, help, looks, nextAgent]);
await browser.close();
