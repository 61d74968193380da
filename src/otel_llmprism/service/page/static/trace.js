// The trace view: waterfall on the left, the chosen span on the right. The chosen span is in the address.
import { fetchTrace } from "./api.js";
import { showDetails } from "./details.js";
import { byId, showProblem } from "./dom.js";
import { formatDuration, formatTime } from "./format.js";
import { wireHeader } from "./header.js";
import { Waterfall } from "./waterfall.js";

function selectSpan(span) {
  const address = new URL(location.href);
  address.searchParams.set("span", span.spanId);
  history.replaceState(null, "", address);
  showDetails(span);
}

async function start() {
  wireHeader();
  const traceId = location.pathname.split("/").pop();
  try {
    const { spans, isCut } = await fetchTrace(traceId);
    const waterfall = new Waterfall(byId("waterfall"), byId("scale"), selectSpan);
    waterfall.show(spans, new URLSearchParams(location.search).get("span"));
    const services = new Set(spans.map((span) => span.service));
    byId("summary").textContent = [
      formatTime(waterfall.beginMs), formatDuration(waterfall.lengthNs),
      `${spans.length} spans${isCut ? " (the rest is not shown)" : ""}`, [...services].join(", "),
    ].join(" · ");
    byId("heading").textContent = waterfall.rows[0].span.name;
    document.title = `${waterfall.rows[0].span.name} · otel-llmprism`;
  } catch (error) {
    byId("summary").textContent = "";
    showProblem(error);
  }
}

start();
