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

// The box at the top right goes to a trace by its id; "/" brings the cursor there from anywhere.
export function wireHeader() {
  const box = byId("goto-id");
  byId("goto").addEventListener("submit", (event) => {
    event.preventDefault();
    const id = box.value.trim().toLowerCase();
    if (/^[0-9a-f]{32}$/.test(id)) location.assign(`/trace/${id}`);
    else showProblem(new Error("A trace id is 32 hex digits."), "header");
  });
  box.addEventListener("input", () => clearProblem("header"));
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) {
      event.preventDefault();
      box.focus();
    }
  });
}
