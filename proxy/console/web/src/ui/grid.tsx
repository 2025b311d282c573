// A table of any length, of which the page contains only the rows in view. The arrow keys select a row, and Enter opens it.
import { Component, type ComponentChildren } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Icon } from "./parts";

export interface Column<Row> {
  key: string;
  title: string;
  sorts?: boolean;
  number?: boolean;
  show: (row: Row) => ComponentChildren;
}

export interface Sort { key: string; down: boolean }

interface Props<Row> {
  label: string;
  rows: Row[];
  columns: Column<Row>[];
  id: (row: Row) => string;
  sort?: Sort;
  onSort?: (key: string) => void;
  chosen?: string;
  onOpen?: (row: Row) => void;
  // In a tree, depth is how deep a row is. open is whether the row is open, or undefined if the row has no children.
  depth?: (row: Row) => number;
  open?: (row: Row) => boolean | undefined;
  onToggle?: (row: Row, open: boolean) => void;
  tone?: (row: Row) => string;
  tall?: boolean; // on phones, a row has three lines
  empty: ComponentChildren;
}

const headHeight = 38, tallHeight = 62;
const phone = matchMedia("(max-width: 820px)"); // the same width as in the style sheets
const step = 8; // number of rows by which the range of rows in the page moves
const spare = 10; // number of rows above and below the view

export function Grid<Row>(p: Props<Row>) {
  const box = useRef<HTMLDivElement>(null);
  const [first, setFirst] = useState(0);
  const [visible, setVisible] = useState(30);
  const [active, setActive] = useState(0);
  const base = useId();
  const [narrow, setNarrow] = useState(phone.matches);
  const tree = !!p.depth, tall = !!p.tall && narrow, rowHeight = tall ? tallHeight : headHeight;
  const at = Math.min(active, Math.max(0, p.rows.length - 1));

  useLayoutEffect(() => {
    const el = box.current!;
    const measure = () => setVisible(Math.ceil(el.clientHeight / rowHeight) + 1);
    const observer = new ResizeObserver(measure);
    observer.observe(el);
    measure();
    return () => observer.disconnect();
  }, [rowHeight]);
  useEffect(() => {
    const changed = () => setNarrow(phone.matches);
    phone.addEventListener("change", changed);
    return () => phone.removeEventListener("change", changed);
  }, []);
  useEffect(() => {
    const el = box.current!;
    let frame = 0;
    const scrolled = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        setFirst(Math.floor(el.scrollTop / rowHeight / step) * step);
      });
    };
    el.addEventListener("scroll", scrolled, { passive: true });
    return () => { el.removeEventListener("scroll", scrolled); cancelAnimationFrame(frame); };
  }, [rowHeight]);

  const move = (to: number) => {
    const next = Math.max(0, Math.min(p.rows.length - 1, to));
    setActive(next);
    const el = box.current!, head = headHeight, top = next * rowHeight;
    if (top < el.scrollTop) el.scrollTop = top;
    else if (top + rowHeight + head > el.scrollTop + el.clientHeight) el.scrollTop = top + rowHeight + head - el.clientHeight;
  };
  const parent = () => {
    const depth = p.depth!(p.rows[at]);
    for (let i = at - 1; i >= 0; i--) if (p.depth!(p.rows[i]) < depth) return i;
    return at;
  };
  const key = (e: KeyboardEvent) => {
    if (e.target !== box.current) return;
    const row = p.rows[at], page = Math.max(1, visible - 3);
    const steps: Record<string, () => void> = {
      ArrowDown: () => move(at + 1), ArrowUp: () => move(at - 1), PageDown: () => move(at + page), PageUp: () => move(at - page),
      Home: () => move(0), End: () => move(p.rows.length - 1),
      Enter: () => row && p.onOpen?.(row), " ": () => row && p.onOpen?.(row),
    };
    if (tree && row) {
      steps.ArrowRight = () => (p.open!(row) === false ? p.onToggle?.(row, true) : p.open!(row) ? move(at + 1) : undefined);
      steps.ArrowLeft = () => (p.open!(row) ? p.onToggle?.(row, false) : move(parent()));
    }
    const act = steps[e.key];
    if (!act || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    act();
  };

  const from = Math.max(0, Math.min(first, p.rows.length - visible) - spare);
  const shown = p.rows.slice(from, from + visible + 2 * spare);
  // Elements of rows that scroll out of view are reused for rows that scroll into view.
  const slots = visible + 2 * spare;
  const activeShown = at >= from && at < from + shown.length;
  return (
    <div class={`grid ${tall ? "tall" : ""}`} ref={box} role={tree ? "treegrid" : "grid"} aria-label={p.label} aria-rowcount={p.rows.length + 1} aria-colcount={p.columns.length} tabIndex={0}
      aria-activedescendant={p.rows.length && activeShown ? `${base}-${at}` : undefined} onKeyDown={key}>
      <div class="head" role="rowgroup">
        <div class="row" role="row" aria-rowindex={1}>
          {p.columns.map((c) => {
            const sorted = p.sort?.key === c.key ? (p.sort.down ? "descending" : "ascending") : undefined;
            return (
              <div key={c.key} class={`cell c-${c.key} ${c.number ? "number" : ""}`} role="columnheader" aria-sort={sorted}>
                {c.sorts ? <button type="button" onClick={() => p.onSort?.(c.key)}>{c.title}<span class={`order ${sorted ?? ""}`}><Icon name="down" size={12} /></span></button> : c.title}
              </div>
            );
          })}
        </div>
      </div>
      {p.rows.length === 0 ? <div class="body" role="rowgroup"><div role="row"><div role="gridcell">{p.empty}</div></div></div> : (
        <div class="body" role="rowgroup" style={{ height: `${p.rows.length * rowHeight}px` }}>
          {shown.map((row, i) => {
            const index = from + i;
            return <Line<Row> key={index % slots} grid={p} height={rowHeight} row={row} index={index} id={`${base}-${index}`} active={index === at} activate={setActive} />;
          })}
        </div>
      )}
    </div>
  );
}

interface LineProps<Row> { grid: Props<Row>; height: number; row: Row; index: number; id: string; active: boolean; activate: (index: number) => void }

// A Line is a row in view. While the list scrolls, only lines that show another row are rendered again.
class Line<Row> extends Component<LineProps<Row>> {
  shouldComponentUpdate(next: LineProps<Row>) {
    const now = this.props;
    return now.row !== next.row || now.grid !== next.grid || now.height !== next.height || now.index !== next.index || now.active !== next.active;
  }
  render({ grid: p, height, row, index, id, active, activate }: LineProps<Row>) {
    const open = p.open?.(row), depth = p.depth?.(row);
    return (
      <div id={id} class={`row ${active ? "active" : ""} ${p.tone?.(row) ?? ""}`} role="row" aria-rowindex={index + 2}
        aria-selected={p.chosen === p.id(row)} aria-level={depth === undefined ? undefined : depth + 1} aria-expanded={open}
        style={{ transform: `translateY(${index * height}px)` }} onClick={() => { activate(index); p.onOpen?.(row); }}>
        {p.columns.map((c, n) => (
          <div key={c.key} class={`cell c-${c.key} ${c.number ? "number" : ""}`} role="gridcell">
            {depth !== undefined && n === 0 && <span class="indent" style={{ width: `${Math.min(depth, 8) * 18}px` }} />}
            {depth !== undefined && n === 0 && (open === undefined ? <span class="twig" /> :
              <button type="button" class={`twig ${open ? "open" : ""}`} tabIndex={-1} aria-label={open ? "Collapse" : "Expand"} onClick={(e) => { e.stopPropagation(); p.onToggle?.(row, !open); }}><Icon name="right" size={14} /></button>)}
            {c.show(row)}
          </div>
        ))}
      </div>
    );
  }
}

// nextSort returns the sort order when the user selects a column: by this column, or the reverse order if the table is already sorted by
// it.
export const nextSort = (now: Sort, key: string): Sort => ({ key, down: now.key === key ? !now.down : false });
