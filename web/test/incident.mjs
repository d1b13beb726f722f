// Keeps pictures of a recording that is one file: `node incident.mjs FILE FOLDER`.

import assert from 'node:assert/strict';
import path from 'node:path';
import { on, open } from './browser.mjs';

process.env.CHROMIUM ??= '/usr/bin/chromium';
const [file, folder] = process.argv.slice(2);
const { browser, page, complaints } = await open();
await page.goto(`file://${path.resolve(file)}`);
await on(page, folder).drawn(await page.locator('.arms figure').count());
await page.screenshot({ path: `${folder}/incident.png` });
await page.emulateMedia({ colorScheme: 'dark' });
await page.screenshot({ path: `${folder}/incident-dark.png` });
assert.deepEqual(complaints, []);
await browser.close();
