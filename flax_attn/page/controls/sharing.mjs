// Shares an input with its settings as an address, and shows it in large type.

import { buttonOf, el } from "../dom.mjs";

/** Returns the `{inputs, settings}` of a run in the address, or null. */
export function sharedState(name) {
  try {
    const state = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    return state.run === name ? state : null;
  } catch {
    return null; // no state
  }
}

/** Makes buttons that copy an address with `state()`, and that toggle the projector mode. */
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
