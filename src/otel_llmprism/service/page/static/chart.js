// Charts, drawn by the library that ships with the server. Without it the tables still say everything.
// The library also brings styles for maps that the page's content policy refuses; nothing here needs them.

let loading = null;

function loadLibrary() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = "/static/vendor/chart.js";
    script.onload = () => resolve(window.Plotly);
    script.onerror = () => reject(new Error("no chart library"));
    document.head.append(script);
  });
  return loading;
}

export function readColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// The library gives a range back as local time in ISO form, with a space.
const toMs = (text) => new Date(String(text).replace(" ", "T")).getTime();

function wire(place, { onPick, onRange }) {
  if (place.dataset.wired || !(onPick || onRange)) return;
  place.dataset.wired = "yes";
  if (onPick) place.on("plotly_click", (event) => onPick(event.points[0].customdata));
  if (onRange) {
    place.on("plotly_relayout", (event) => {
      const [begin, end] = [event["xaxis.range[0]"], event["xaxis.range[1]"]].map(toMs);
      if (Number.isFinite(begin) && Number.isFinite(end)) onRange(begin, end);
    });
  }
}

// `range`: [begin, end] in ms; `marks`: spans of time to shade, {beginMs, endMs, text}.
export async function drawChart(place, traces, { yTitle, onPick, onRange, range, marks = [], height = 170 } = {}) {
  let library;
  try {
    library = await loadLibrary();
  } catch {
    place.hidden = true;
    return;
  }
  place.hidden = false;
  const [ink, line] = [readColour("soft"), readColour("line")];
  const axis = { gridcolor: line, zerolinecolor: line, automargin: true };
  const layout = {
    margin: { l: 60, r: 10, t: 8, b: 30 }, height, showlegend: traces.length > 1,
    legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom" },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, size: 11 },
    xaxis: { ...axis, type: "date", ...(range ? { range: range.map((ms) => new Date(ms)) } : {}) },
    yaxis: { ...axis, title: { text: yTitle }, rangemode: "tozero", fixedrange: Boolean(onRange) },
    shapes: marks.map(({ beginMs, endMs, text }, at) => ({
      type: "rect", xref: "x", yref: "paper", x0: new Date(beginMs), x1: new Date(endMs), y0: 0, y1: 1, layer: "below",
      fillcolor: readColour("error"), opacity: 0.14, line: { width: 1, color: readColour("error"), dash: "dot" },
      label: { text, textposition: at % 2 ? "top left" : "bottom left", font: { size: 10, color: ink } },
    })),
  };
  await library.react(place, traces, layout, { displayModeBar: false, responsive: true });
  wire(place, { onPick, onRange });
}
