// The query API as the views see it. Times come as text, since nanoseconds since 1970 do not fit a
// JavaScript number; within a trace they become exact numbers relative to its begin.

const BASE = "/api/llmprism/v1";
const SHOWN = { request: "llmprism.request", step: "llmprism.step", slow: "llmprism.step", finding: "llmprism.finding" };

async function ask(path, params = [], order = {}) {
  const query = new URLSearchParams(params).toString();
  let response;
  try {
    response = await fetch(`${BASE}${path}${query ? `?${query}` : ""}`, { headers: { accept: "application/json" }, ...order });
  } catch {
    throw new Error("The server does not answer. Is otel-llmprism still running?");
  }
  const body = await response.json().catch(() => ({}));
  if (!response.ok) {
    const { message = response.statusText, hint = "" } = body.error ?? {};
    throw new Error(hint ? `${message}: ${hint}` : message);
  }
  return body;
}

const toMs = (ns) => Number(BigInt(ns) / 1000n) / 1000;

// Service -> names of its operations.
export async function fetchServices() {
  const { services } = await ask("/services");
  return new Map(services.map((service) => [service.name, [...new Set(service.operations.map((one) => one.name))]]));
}

export async function searchTraces({ show, operation, tags, ...plain }) {
  const params = Object.entries(plain);
  if (operation || show) params.push(["operation", operation || SHOWN[show]]);
  if (show === "slow") params.push(["anomalous", "true"]);
  for (const pair of (tags ?? "").split(/[\s,]+/).filter(Boolean)) {
    const [, key, value] = /^([^=:]+)[=:](.*)$/.exec(pair) ?? [];
    if (!key) throw new Error(`"${pair}" is no attribute: write key=value, several with spaces between.`);
    params.push(["tag", `${key}:${value}`]);
  }
  const { traces, isPartial } = await ask("/traces", params);
  const found = traces.map((trace) => ({
    traceId: trace.traceId, name: trace.root.name, service: trace.services.join(", "),
    atMs: toMs(trace.startNs), durationNs: trace.durationNs, spans: trace.spanCount, errors: trace.errorCount,
  }));
  return { traces: found, isPartial };
}

export async function fetchTrace(traceId) {
  const { spans, isCut } = await ask(`/traces/${encodeURIComponent(traceId)}`);
  const begin = spans.map((span) => BigInt(span.startNs)).reduce((left, right) => (left < right ? left : right));
  const relative = (ns) => Number(BigInt(ns) - begin);
  return {
    isCut,
    spans: spans.map((span) => ({
      ...span, parentId: span.parentSpanId, startNs: relative(span.startNs), atMs: toMs(span.startNs),
      hasError: span.status === "error",
      events: span.events.map((event) => ({ ...event, timeNs: relative(event.timeNs) })),
      links: span.links.map((link) => ({ ...link, name: link.target?.name })),
    })),
  };
}

export async function fetchBackLinks(traceId, spanId) {
  return (await ask(`/spans/${traceId}/${spanId}/back-links`, [["limit", 1000]])).links;
}

export const fetchLive = () => ask("/live");
export const fetchMetrics = async () => (await ask("/metrics")).metrics;

const filled = (wanted) => Object.entries(wanted).filter(([, value]) => value !== undefined && value !== null && value !== "");

export const fetchEngines = async () => (await ask("/engines")).engines;
export const fetchFindings = (wanted) => ask("/findings", filled(wanted));
export const fetchFinding = (id) => ask(`/findings/${encodeURIComponent(id)}`);

// `end` is in microseconds, undefined for now.
export const fetchSeries = (engine, seconds, end) => ask(`/engines/${encodeURIComponent(engine)}/series`, filled({ seconds, end }));

// Says something about a finding: acknowledge, dismiss, or silence with {seconds}; gives the finding as it is then.
export const sayOfFinding = (id, what, body = {}) => ask(`/findings/${encodeURIComponent(id)}/${what}`, [], {
  method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json", accept: "application/json" },
});
