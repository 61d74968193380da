// Chart blocks -> charts: by kind of step the observed cycle against the expected one with its upper limit, and
// below it the work. Shapes differ as well as colours: circles and crosses, full, dashed and dotted lines.
import { drawChart, readColour } from "./chart.js";
import { fill, make } from "./dom.js";

const ORDER = ["decode", "prefill", "mixed", "train"];
const MIN_WIDTH_MS = 1000;
const CROWD = 300;
const SETTLED_GAP = 3; // a hole this many times as wide as a block is drawn as a hole
const WORK = [
  ["Prefill tokens a step", "tokens", [["prefill_tokens", "prefill tokens"]]],
  ["Decode sequences a step", "sequences", [["decode_tokens", "decode sequences"]]],
  ["KV tokens in use", "tokens", [["kv_tokens", "KV tokens"]]],
  ["Requests", "requests", [["running", "running"], ["waiting", "waiting"]]],
  ["Gaps while work waited", "ms", [["gap_ms", "gap"]]],
];

export const toBlocks = (blocks) => blocks.map((block) => ({ ...block, atMs: block.t_ns / 1e6, gap_ms: block.gap_s * 1e3 }));

export function groupKinds(blocks) {
  const kinds = new Map();
  for (const block of blocks) {
    if (!kinds.has(block.kind)) kinds.set(block.kind, []);
    kinds.get(block.kind).push(block);
  }
  const rate = ([kind]) => (ORDER.includes(kind) ? ORDER.indexOf(kind) : ORDER.length);
  return new Map([...kinds].sort((left, right) => rate(left) - rate(right)));
}

// The usual distance of two blocks: the median, since there are holes.
function measureWidth(blocks) {
  const widths = blocks.slice(1).map((block, at) => block.atMs - blocks[at].atMs).sort((left, right) => left - right);
  return widths[Math.floor(widths.length / 2)] ?? 1000;
}

export function breakHoles(blocks) {
  const hole = SETTLED_GAP * measureWidth(blocks);
  return blocks.flatMap((block, at) => (at && block.atMs - blocks[at - 1].atMs > hole ? [{ atMs: blocks[at - 1].atMs + 1 }, block] : [block]));
}

// The band from expected to the limit, an outline for every stretch in which both are known.
function makeBand(blocks) {
  const [x, y] = [[], []];
  let stretch = [];
  const close = () => {
    const back = [...stretch].reverse();
    x.push(...[...stretch, ...back].map((block) => new Date(block.atMs)), null);
    y.push(...stretch.map((block) => block.upper_s * 1e3), ...back.map((block) => block.expected_s * 1e3), null);
    stretch = [];
  };
  for (const block of blocks) {
    if (typeof block.upper_s === "number" && typeof block.expected_s === "number") stretch.push(block);
    else if (stretch.length) close();
  }
  if (stretch.length) close();
  return { name: "band", type: "scatter", mode: "none", x, y, fill: "toself", fillcolor: "rgba(128,140,155,0.2)", hoverinfo: "skip", showlegend: false };
}

function makeCycleTraces(blocks) {
  const drawn = breakHoles(blocks);
  const x = drawn.map((block) => new Date(block.atMs));
  const toMs = (key) => drawn.map((block) => (Number.isFinite(block[key]) && block[key] !== null ? block[key] * 1e3 : null));
  const line = (name, key, colour, dash, more) => ({ name, type: "scatter", mode: "lines", x, y: toMs(key), line: { color: colour, dash, width: 1.5 }, ...more });
  const [ink, alarm] = [readColour("accent"), readColour("error")];
  const limits = drawn.some((block) => typeof block.expected_s === "number") ? [
    makeBand(drawn),
    line("expected", "expected_s", readColour("soft"), "dash", { hovertemplate: "%{y:.2f} ms<extra>expected</extra>" }),
    line("upper limit", "upper_s", readColour("soft"), "dot", { hovertemplate: "%{y:.2f} ms<extra>upper limit</extra>" }),
  ] : [];
  return [
    ...limits,
    line("observed", "observed_s", ink, "solid", {
      mode: "lines+markers",
      marker: {
        size: drawn.map((block) => (block.is_alarm ? 7 : 4) * (drawn.length > CROWD ? 0.6 : 1)), symbol: drawn.map((block) => (block.is_alarm ? "x" : "circle")),
        color: drawn.map((block) => (block.is_alarm ? alarm : ink)),
      },
      text: drawn.map((block) => `${block.steps ?? 0} steps${block.is_alarm ? ", above the limit" : ""}`),
      hovertemplate: "%{y:.2f} ms, %{text}<extra>observed</extra>",
    }),
  ];
}

// Places are kept from one answer to the next, so that a chart is changed and not built anew.
function findPlace(place, name) {
  let found = [...place.children].find((one) => one.dataset.name === name);
  if (!found) {
    found = make("figure", { "data-name": name }, make("figcaption", {}, name), make("div", { class: "plot", "aria-hidden": "true" }));
    place.append(found);
  }
  return found.querySelector(".plot");
}

function dropOthers(place, names) {
  for (const one of [...place.children]) if (!names.includes(one.dataset.name)) one.remove();
}

export async function drawCycles(place, blocks, options) {
  const kinds = groupKinds(blocks);
  const names = [...kinds.keys()].map((kind) => `Cycle of ${kind} steps`);
  dropOthers(place, names);
  for (const [kind, own] of kinds) {
    await drawChart(findPlace(place, `Cycle of ${kind} steps`), makeCycleTraces(own), { yTitle: "ms", height: 210, ...options });
  }
}

// One point a block's width: the mean over the kinds of step then, weighed by their steps; gaps add up. Kinds have
// blocks of their own, whose times differ.
function joinKinds(blocks, key) {
  const told = blocks.filter((block) => typeof block[key] === "number");
  const width = Math.max(MIN_WIDTH_MS, ...[...groupKinds(told).values()].map(measureWidth).slice(0, 1));
  const times = new Map();
  for (const block of told) {
    const atMs = Math.floor(block.atMs / width) * width;
    const weight = key === "gap_ms" ? 1 : block.steps || 1;
    const sum = times.get(atMs) ?? { atMs, value: 0, weight: 0 };
    sum.value += block[key] * weight;
    sum.weight += weight;
    times.set(atMs, sum);
  }
  const points = [...times.values()].sort((left, right) => left.atMs - right.atMs);
  return points.map(({ atMs, value, weight }) => ({ atMs, value: key === "gap_ms" ? value : value / weight }));
}

export async function drawWork(place, blocks, options) {
  const told = WORK.map(([name, unit, keys]) => [name, unit, keys.map(([key, title]) => [title, joinKinds(blocks, key)]).filter(([, points]) => points.length)]);
  const shown = told.filter(([, , lines]) => lines.length);
  dropOthers(place, shown.map(([name]) => name));
  for (const [name] of shown) findPlace(place, name); // all before the first is drawn: they share the width
  for (const [name, unit, lines] of shown) {
    const traces = lines.map(([title, points], at) => {
      const drawn = breakHoles(points);
      return {
        name: title, type: "scatter", mode: "lines", x: drawn.map((one) => new Date(one.atMs)), y: drawn.map((one) => one.value ?? null),
        line: { color: readColour(at ? "error" : "accent"), dash: at ? "dash" : "solid", width: 1.5 },
      };
    });
    await drawChart(findPlace(place, name), traces, { yTitle: unit, height: 140, ...options });
  }
  if (!shown.length) fill(place, make("p", { class: "hint", "data-name": "" }, "This engine does not tell what work its steps did."));
}
