// A page in a real browser, and everything that the browser complains about.

import assert from 'node:assert/strict';
import { chromium } from 'playwright-core';

/** Longer than anything here takes on a loud machine. */
const PATIENCE_MS = 30000;
const POLL_MS = 200;

/** Opens a browser, in light colours. */
export async function open({ height = 900 } = {}) {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });
  const page = await browser.newPage({ viewport: { width: 1200, height }, colorScheme: 'light' });
  page.setDefaultTimeout(PATIENCE_MS);
  const complaints = [];
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(`${message.text()} ${message.location().url}`);
  });
  await page.exposeFunction('complain', (what) => complaints.push(what));
  await page.addInitScript(() => document.addEventListener('securitypolicyviolation', (event) => (
    window.complain(`policy: ${event.violatedDirective} ${event.blockedURI}`))));
  return { browser, page, complaints };
}

/** What parts of a test do with a page. */
export function on(page, pictures) {
  const focused = () => page.evaluate(() => document.activeElement.innerText || document.activeElement.value || '');
  return {
    text: (selector) => page.locator(selector).first().innerText(),
    waitForText: (selector, wanted) => page.locator(selector).filter({ hasText: wanted }).first().waitFor(),
    picture: (name) => page.screenshot({ path: `${pictures}/${name}.png`, fullPage: true }),
    focused,
    /** Goes from one control to the next until one says `wanted`. */
    async tabTo(wanted) {
      for (let steps = 0; steps < 80; steps += 1) {
        await page.keyboard.press('Tab');
        if ((await focused()) === wanted) return;
      }
      assert.fail(`Tab never comes to ${wanted}`);
    },
    /** Waits until so many plots are drawn: areas and lines have more than grid lines have. */
    async drawn(count) {
      await page.waitForFunction((wanted) => document.querySelectorAll('canvas').length === wanted, count);
      await page.waitForFunction(() => [...document.querySelectorAll('canvas')].every((canvas) => {
        // By a copy: a browser complains of a canvas that is read again and again.
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
        copy.drawImage(canvas, 0, 0);
        const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
        let opaque = 0;
        for (let at = 3; at < data.length; at += 4) opaque += data[at] === 255;
        return opaque > 100;
      }), undefined, { polling: POLL_MS });
    },
    background: () => page.evaluate(() => getComputedStyle(document.body).backgroundColor),
    /** That nothing is wider than a narrow window. */
    async fitsNarrow(what) {
      const over = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
      assert.ok(over <= 0, `${what} is ${over} too wide`);
    },
  };
}

/** Runs parts in their order, and tells how long each takes. */
export async function run(parts) {
  for (const part of parts) {
    const started = Date.now();
    await part();
    console.error(`${part.name}: ${Date.now() - started} ms`);
  }
}
