// One trace as a tree of rows over one time axis. A tree in the sense of ARIA: one row takes the focus,
// arrow keys move and fold. Knows spans (times relative to the trace), not where they come from.
import { fill, make } from "./dom.js";
import { readExpectation } from "./expectation.js";
import { formatDuration } from "./format.js";

const INDENT_EM = 1.1;

export function arrangeSpans(spans) {
  const byId = new Map(spans.map((span) => [span.spanId, span]));
  const children = new Map();
  const roots = [];
  for (const span of spans) {
    if (span.parentId && byId.has(span.parentId) && span.parentId !== span.spanId) {
      if (!children.has(span.parentId)) children.set(span.parentId, []);
      children.get(span.parentId).push(span);
    } else roots.push(span);
  }
  const rows = [];
  const seen = new Set();
  const byStart = (left, right) => left.startNs - right.startNs;
  // An explicit stack, and a set against cycles: neither depth nor nonsense in the input may stop the page.
  const stack = roots.sort(byStart).reverse().map((span) => ({ span, depth: 0, parent: null }));
  while (stack.length) {
    const { span, depth, parent } = stack.pop();
    if (seen.has(span)) continue;
    seen.add(span);
    const own = (children.get(span.spanId) ?? []).sort(byStart);
    const row = { span, depth, parent, hasChildren: own.length > 0, isOpen: true };
    rows.push(row);
    stack.push(...own.reverse().map((child) => ({ span: child, depth: depth + 1, parent: row })));
  }
  for (const span of spans) if (!seen.has(span)) rows.push({ span, depth: 0, parent: null, hasChildren: false, isOpen: true });
  return rows;
}

// A bar's duration stands after it, before it, or in it: wherever the lane has room.
function placeLabel(left, width) {
  if (left + width < 88) return ["after", left + width];
  return left > 12 ? ["before", left] : ["inside", left];
}

// A step slower than its work explains is striped beyond what was expected, and says so beside its duration.
function makeBar(span, left, width) {
  const expected = readExpectation(span);
  const kind = span.hasError ? "bar slow" : expected?.isAnomalous ? "bar anomalous" : "bar";
  const bar = make("span", { class: kind, style: { left: `${left}%`, width: `${width}%` }, title: expected?.text });
  if (expected?.isAnomalous) bar.append(make("span", { class: "beyond", style: { left: `${expected.share * 100}%` } }));
  return bar;
}

function sayDuration(span) {
  const expected = readExpectation(span);
  return `${formatDuration(span.durationNs)}${expected ? ` · ${expected.isAnomalous ? "▲ " : ""}${expected.short}` : ""}`;
}

export class Waterfall {
  constructor(place, scale, onSelect) {
    this.place = place;
    this.scale = scale;
    this.onSelect = onSelect;
    this.rows = [];
    place.addEventListener("keydown", (event) => this.#onKey(event));
  }

  show(spans, selectedId) {
    this.rows = arrangeSpans(spans);
    // A loop and not Math.min(...): a trace can have more spans than a call takes arguments.
    this.beginMs = Infinity;
    this.lengthNs = 1;
    for (const span of spans) {
      this.beginMs = Math.min(this.beginMs, span.atMs);
      this.lengthNs = Math.max(this.lengthNs, span.startNs + span.durationNs);
    }
    this.#drawScale();
    for (const row of this.rows) row.element = this.#makeRow(row);
    fill(this.place, this.rows.map((row) => row.element));
    this.select(this.rows.find((row) => row.span.spanId === selectedId) ?? this.rows[0]);
  }

  select(row, takeFocus = false) {
    for (const other of this.rows) {
      other.element.setAttribute("aria-selected", String(other === row));
      other.element.tabIndex = other === row ? 0 : -1;
    }
    if (takeFocus) row.element.focus();
    this.selected = row;
    this.onSelect(row.span);
  }

  #drawScale() {
    fill(this.scale, [0, 0.25, 0.5, 0.75, 1].map((share) =>
      make("span", { style: { left: `${share * 100}%` } }, formatDuration(share * this.lengthNs))));
  }

  #makeRow(row) {
    const { span, depth } = row;
    const left = (span.startNs / this.lengthNs) * 100;
    const width = (span.durationNs / this.lengthNs) * 100;
    const [side, at] = placeLabel(left, width);
    const fold = make("span", { class: "fold", "aria-hidden": "true" }, row.hasChildren ? "▾" : "");
    row.fold = fold;
    return make("div", {
      class: "row", role: "treeitem", "aria-level": depth + 1, "aria-selected": "false",
      "aria-expanded": row.hasChildren ? "true" : undefined, "data-span": span.spanId,
      onclick: (event) => {
        if (event.target === fold && row.hasChildren) this.#setOpen(row, !row.isOpen);
        this.select(row, true);
      },
    },
    make("span", { class: "name", style: { paddingLeft: `${depth * INDENT_EM}em` }, title: `${span.service}: ${span.name}` },
      fold, make("span", { class: span.hasError ? "error" : undefined }, span.name), make("small", {}, span.service)),
    make("span", { class: "lane" },
      makeBar(span, left, width), make("span", { class: `took ${side}`, style: { left: `${at}%` } }, sayDuration(span))));
  }

  #setOpen(row, isOpen) {
    row.isOpen = isOpen;
    row.element.setAttribute("aria-expanded", String(isOpen));
    row.fold.textContent = isOpen ? "▾" : "▸";
    for (const other of this.rows) other.element.hidden = !this.#isVisible(other);
  }

  #isVisible(row) {
    for (let above = row.parent; above; above = above.parent) if (!above.isOpen) return false;
    return true;
  }

  #onKey(event) {
    const visible = this.rows.filter((row) => this.#isVisible(row));
    const at = visible.indexOf(this.selected);
    const go = (row) => row && this.select(row, true);
    const row = this.selected;
    const actions = {
      ArrowDown: () => go(visible[at + 1]),
      ArrowUp: () => go(visible[at - 1]),
      Home: () => go(visible[0]),
      End: () => go(visible.at(-1)),
      ArrowRight: () => (row.hasChildren && !row.isOpen ? this.#setOpen(row, true) : go(row.hasChildren ? visible[at + 1] : null)),
      ArrowLeft: () => (row.hasChildren && row.isOpen ? this.#setOpen(row, false) : go(row.parent)),
      Enter: () => document.getElementById("details").querySelector("a, summary")?.focus(),
    };
    if (actions[event.key]) {
      event.preventDefault();
      actions[event.key]();
    }
  }
}
