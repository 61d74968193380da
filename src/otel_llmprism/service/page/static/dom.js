// Builds elements; text is always text, never markup, so nothing that came over the wire can run.

export const byId = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return element;
}

export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== undefined && child !== null));
}

export function showProblem(error, from = "view") {
  const place = byId("problem");
  place.textContent = error.message;
  place.dataset.from = from;
  place.hidden = false;
}

// Each clears its own only: what the view reads again must not take away what the header said.
export function clearProblem(from = "view") {
  const place = byId("problem");
  if (place.dataset.from === from) place.hidden = true;
}

// Changes a text only when it differs: a screen reader says again what was set again.
export function setText(id, text) {
  if (byId(id).textContent !== text) byId(id).textContent = text;
}

// Replaces what is in `element` and keeps the focus on the link or button it was on, found again by `data-key`.
export function refill(element, ...children) {
  const key = element.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  fill(element, ...children);
  if (key !== undefined) [...element.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key)?.focus();
}

// A table with heads; the cells of a row are texts, elements, or {number} for what stands at the right.
export function makeTable(heads, rows) {
  return make("div", { class: "wide" }, make("table", {},
    make("thead", {}, make("tr", {}, heads.map((head, at) =>
      make("th", { scope: "col", class: rows[0]?.[at]?.number === undefined ? undefined : "number" }, head)))),
    make("tbody", {}, rows.map((cells) => make("tr", {}, cells.map((cell) => (cell?.number === undefined
      ? make("td", {}, cell ?? "") : make("td", { class: "number" }, cell.number))))))));
}
