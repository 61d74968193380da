// One span: its attributes, events, and the links out of it and into it.
import { fetchBackLinks } from "./api.js";
import { byId, fill, make } from "./dom.js";
import { readExpectation } from "./expectation.js";
import { formatDuration, formatTime, formatValue } from "./format.js";

function makeTable(attributes) {
  const rows = Object.entries(attributes).sort(([left], [right]) => left.localeCompare(right));
  return make("table", {}, make("tbody", {}, rows.map(([key, value]) =>
    make("tr", {}, make("td", {}, key), make("td", {}, formatValue(value))))));
}

function makeLink(link) {
  const says = Object.entries(link.attributes).map(([key, value]) => `${key.replace(/^llmprism\./, "")}=${formatValue(value)}`);
  const name = link.name ? `${link.name}` : `${link.traceId.slice(0, 8)}… (not stored here)`;
  return make("li", {}, make("a", { href: `/trace/${link.traceId}?span=${link.spanId}` }, name), " ", make("small", {}, says.join(" ")));
}

function makeLinks(title, links) {
  if (!links.length) return null;
  return make("details", { open: true }, make("summary", {}, `${title} (${links.length})`), make("ul", {}, links.map(makeLink)));
}

function makeExpectation(span) {
  const expected = readExpectation(span);
  if (!expected) return null;
  return make("p", { class: expected.isAnomalous ? "error" : undefined }, `${expected.isAnomalous ? "▲ Slower than its work explains. " : ""}${expected.text}`);
}

// From a span that names them to the views of its finding and of its engine at that time.
function makeWays(span) {
  const finding = span.attributes["llmprism.finding.id"];
  const engine = span.name === "llmprism.step" || finding ? span.resource["llmprism.engine.id"] : null;
  const end = String(Math.round((span.atMs + 60_000) * 1000));
  return [
    typeof finding === "string" ? make("p", {}, make("a", { href: `/finding/${encodeURIComponent(finding)}` }, "The finding")) : null,
    engine ? make("p", {}, make("a", { href: `/engine?${new URLSearchParams({ id: engine, seconds: 600, end })}` }, "The engine at that time")) : null,
  ];
}

export function showDetails(span) {
  const backLinks = make("div");
  fill(byId("details"),
    make("h2", {}, span.name),
    make("p", {}, [span.service, span.kind, formatTime(span.atMs), formatDuration(span.durationNs)].filter(Boolean).join(" · ")),
    span.statusMessage || span.hasError ? make("p", { class: "error" }, `error: ${span.statusMessage || "no message"}`) : null,
    makeExpectation(span),
    makeWays(span),
    makeTable(span.attributes),
    makeLinks("Links to", span.links),
    backLinks,
    span.events.length ? make("h2", {}, `Events (${span.events.length})`) : null,
    span.events.map((event) => make("details", {},
      make("summary", {}, `${event.name} · ${formatDuration(Math.max(0, event.timeNs - span.startNs))} in`), makeTable(event.attributes))),
    make("details", {}, make("summary", {}, "Resource"), makeTable(span.resource)),
    make("p", { class: "hint" }, `span ${span.spanId} of trace ${span.traceId}`));
  fetchBackLinks(span.traceId, span.spanId)
    .then((links) => { const list = makeLinks("Linked from", links); if (list) backLinks.replaceWith(list); })
    .catch(() => { backLinks.textContent = "links into this span could not be read"; });
}
