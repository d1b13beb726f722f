// What all plots by uPlot have in common: colours of the style sheet, axes, and how areas and lines
// are drawn.

const FONT = '12px system-ui, sans-serif';

export const dark = matchMedia('(prefers-color-scheme: dark)');

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** An axis with the attributes that are its own. */
export function axis(own) {
  return { stroke: colour('muted'), font: FONT, grid: { stroke: colour('grid'), width: 1 }, ticks: { show: false }, ...own };
}

/** Series as uPlot takes them: areas, and lines over them. */
export function drawn(series) {
  const each = series.map((one) => ({
    stroke: colour(one.tone),
    fill: one.line ? undefined : colour(one.tone),
    width: one.line ? 1.5 : 0,
    dash: one.dash ? [4, 3] : undefined,
    points: { show: false },
  }));
  return [{}, ...each];
}

/** Columns as uPlot takes them; a point with `gap` interrupts every series. */
export function columns(points, series) {
  const heights = series.map((one) => points.map((point) => (point.gap ? null : one.height(point))));
  return [points.map((point) => point.time), ...heights];
}

/** The same points with a gap wherever two are more than `seconds` apart. */
export function withGaps(points, seconds) {
  const whole = [];
  for (const point of points) {
    const last = whole.at(-1);
    if (last && point.time - last.time > seconds) whole.push({ time: last.time + seconds / 5, gap: true });
    whole.push(point);
  }
  return whole;
}
