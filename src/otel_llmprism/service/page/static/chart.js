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

export async function drawChart(place, traces, { yTitle, onPick } = {}) {
  let library;
  try {
    library = await loadLibrary();
  } catch {
    place.hidden = true;
    return;
  }
  place.hidden = false;
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--soft").trim();
  const line = style.getPropertyValue("--line").trim();
  const axis = { gridcolor: line, zerolinecolor: line, automargin: true };
  const layout = {
    margin: { l: 60, r: 10, t: 8, b: 30 }, height: 170, showlegend: traces.length > 1,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, size: 11 },
    xaxis: { ...axis, type: "date" }, yaxis: { ...axis, title: { text: yTitle }, rangemode: "tozero" },
  };
  await library.react(place, traces, layout, { displayModeBar: false, responsive: true });
  if (onPick && !place.dataset.wired) {
    place.dataset.wired = "yes";
    place.on("plotly_click", (event) => onPick(event.points[0].customdata));
  }
}
