// A run that trains while the page is open: how far it is, and when its model has changed.

import { buttonOf, el } from "./dom.mjs";

export const LEARNED = "learned"; // the event of a document whose model has changed
const BETWEEN = 1000; // milliseconds between two questions

/** A line that says how far the training is. `draw(state)` shows what was measured until then. */
export function following(draw) {
  const node = el("p", { class: "note", role: "status" }, "The training begins.");
  let shownEpoch = null;
  const ask = async () => {
    let state;
    try {
      state = await (await fetch("/state")).json();
    } catch {
      node.textContent = "The training has ended. The same command goes on from what is saved.";
      return;
    }
    const { epoch, of, is_finished: isFinished } = state;
    if (isFinished) {
      const again = buttonOf("Show examples and results", () => location.reload());
      node.replaceChildren("The training is finished. ", again);
    } else if (epoch !== shownEpoch) {
      node.textContent = epoch
        ? `The model as it stands after epoch ${epoch} of ${of}. It goes on learning.`
        : "The model before its training: its weights are random.";
    }
    if (isFinished || epoch !== shownEpoch) {
      if (shownEpoch !== null) document.dispatchEvent(new Event(LEARNED));
      draw(state);
    }
    shownEpoch = epoch;
    if (!isFinished) setTimeout(ask, BETWEEN);
  };
  ask();
  return node;
}
