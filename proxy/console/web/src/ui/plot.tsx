// Components that plot the last minutes with uPlot.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { duration, time as clock } from "../format";
import { Cell, useCell } from "../state";

// look changes with the theme, so that plots use the theme's colors.
export const look = new Cell(0);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { look.value++; });

function color(name: string): string {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

export interface Line { name: string; color: "--line-a" | "--line-b"; values: (number | null)[] }

// powers contains the possible distances between grid lines for bytes.
const powers = Array.from({ length: 50 }, (_, i) => 2 ** i);
const height = 132;

// shownTimes returns the first and last time that a plot shows. For a single sample, uPlot by itself would show a whole day.
function shownTimes(times: ArrayLike<number>, span: number): [number, number] {
  const last = times.length ? times[times.length - 1] : Date.now() / 1000;
  return [last - Math.min(span, Math.max(60, last - (times[0] ?? last))), last];
}

// isolated returns the indices of values without a neighbor. A line does not show such values, so they are drawn as points.
function isolated(u: uPlot, series: number): number[] | null {
  const values: (number | null | undefined)[] = Array.from(u.data[series]);
  const found = values.flatMap((v, i) => (v != null && values[i - 1] == null && values[i + 1] == null ? [i] : []));
  return found.length ? found : null;
}

export function Plot({ title, times, lines, format, binary, span = 300 }: { title: string; times: number[]; lines: Line[]; format: (n: number) => string; binary?: boolean; span?: number }) { // span in seconds
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const theme = useCell(look);
  useEffect(() => {
    const box = place.current!;
    const grid = { stroke: color("--rule"), width: 1 };
    const axis = { stroke: color("--faint"), grid, ticks: { show: false }, font: "11px system-ui" };
    const made = new uPlot({
      width: box.clientWidth || 300, height, padding: [8, 26, 0, 0],
      legend: { show: false }, cursor: { show: false }, pxAlign: false,
      scales: {
        x: { time: true, range: (u) => shownTimes(u.data[0], span) },
        y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.15 : 1] },
      },
      axes: [{ ...axis, size: 22, space: 62, incrs: [15, 30, 60, 120, 300, 600, 1200], values: (_u, at) => at.map((t) => clock(t * 1000)) }, { ...axis, size: 66, space: 34, ...(binary ? { incrs: powers } : {}), values: (_u, at) => at.map((n) => (n === 0 ? "0" : format(n))) }],
      series: [{}, ...lines.map((l) => ({ label: l.name, stroke: color(l.color), width: 1.6, fill: color(l.color + "-soft"), points: { show: false, filter: isolated, size: 6, fill: color(l.color) }, spanGaps: false }))],
    }, [[], ...lines.map(() => [])], box);
    plot.current = made;
    const sized = new ResizeObserver(() => { if (box.clientWidth) made.setSize({ width: box.clientWidth, height }); });
    sized.observe(box);
    return () => { sized.disconnect(); made.destroy(); plot.current = null; };
  }, [theme, lines.length, span]);
  useEffect(() => { plot.current?.setData([times, ...lines.map((l) => l.values)] as uPlot.AlignedData); }, [times, theme]);
  const last = (l: Line) => l.values.at(-1);
  const told = lines.map((l) => `${l.name} ${last(l) == null ? "–" : format(last(l)!)}`).join(", ");
  return (
    <section class="card plot">
      <h3>{title}</h3>
      <p class="legend">{lines.map((l) => <span key={l.name}><i style={{ background: `var(${l.color})` }} />{l.name} <b>{last(l) == null ? "–" : format(last(l)!)}</b></span>)}</p>
      <div class="canvas" ref={place} role="img" aria-label={`${title}, at most the last ${duration(span)}. Now: ${told}`} />
    </section>
  );
}
