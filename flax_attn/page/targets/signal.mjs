// A signal: predictions as lines. Those of an example stand in the picture of its input.

import { div, el } from "../dom.mjs";
import { meanOf } from "../lists.mjs";
import { channelsOf, frameOf, lineIn, storedChannels } from "../shapes/channels.mjs";
import { addTarget } from "../views.mjs";

/** Rows of lines, one a run, with the target where it is known. */
function triedSignal({ runs, run }) {
  const rows = runs.map(({ name }) => {
    const { picture, lines } = frameOf();
    const label = el("span", {}, runs.length > 1 ? name : "");
    return { node: el("div", { class: "try-series-row try-predicted" }, label, picture), lines };
  });
  const show = (replies, goal) =>
    rows.forEach(({ lines }, i) => {
      const channels = channelsOf(replies[i].outputs);
      lines.replaceChildren(
        ...(goal ? [lineIn(run, goal, "try-target")] : []),
        ...channels.map((channel) => lineIn(run, channel, `try-answer-${i}`)),
      );
    });
  const said = ({ outputs }, goal) => {
    if (!goal) return "";
    const errors = channelsOf(outputs)[0].map((own, t) => Math.abs(own - goal[t]));
    return `mean absolute error ${meanOf(errors).toFixed(2)}`;
  };
  return { node: div(rows.map((row) => row.node)), title: "Prediction", show, said };
}

addTarget("signal", {
  verdict: () => null,
  beside: () => null,
  kept: (run, { predictions }) => ({ outputs: storedChannels(predictions) }),
  tried: triedSignal,
});
