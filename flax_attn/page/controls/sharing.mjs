// What a reader takes to others: the address of an input with its settings, and large type.

import { buttonOf, el } from "../dom.mjs";

/** What the address says of a run, `{inputs, settings}`, or null. */
export function sharedState(name) {
  try {
    const state = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    return state.run === name ? state : null;
  } catch {
    return null; // no state
  }
}

/** Buttons that copy an address with `state()`, and that show what is tried alone and large. */
export function shareRow(state) {
  const status = el("span", { class: "hint", role: "status" });
  const copy = buttonOf("Copy link", async () => {
    history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(state()))}`);
    const copying = navigator.clipboard?.writeText(location.href) ?? Promise.reject(new Error());
    const said = (text) => () => (status.textContent = text);
    await copying.then(said("Copied."), said("The link is in the address bar."));
  });
  const large = buttonOf("Projector mode", () => {
    const isOn = document.documentElement.classList.toggle("projector");
    large.setAttribute("aria-pressed", String(isOn));
    node.closest(".try").scrollIntoView();
  });
  large.setAttribute("aria-pressed", "false");
  const node = el("div", { class: "row no-print" }, copy, large, status);
  return node;
}
