// A recording as one file: the data is in the page.

import { recordingView } from './recording.js';

const { name, view } = JSON.parse(document.getElementById('data').textContent);
document.getElementById('view').replaceChildren(recordingView(name, view));
