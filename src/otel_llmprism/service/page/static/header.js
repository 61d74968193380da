// The header of every view: a box that goes to a trace by its id, and the number of findings that run now.
import { fetchFindings } from "./api.js";
import { byId, clearProblem, showProblem } from "./dom.js";
import { keepAsking } from "./repeat.js";

const EVERY_MS = 5000;

async function countFindings() {
  const badge = byId("active-findings");
  try {
    const { active } = await fetchFindings({ state: "active", limit: 1 });
    badge.textContent = active ? `${active} running` : "";
    badge.hidden = active === 0;
  } catch {
    badge.hidden = true; // the view itself says what is wrong
  }
}

// "/" brings the cursor to the box from anywhere.
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
  keepAsking(countFindings, EVERY_MS);
}
