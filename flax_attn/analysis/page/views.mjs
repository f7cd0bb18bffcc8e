// The picture of a run, by its kind.

import { el } from "./dom.mjs";
import { drawImage } from "./images.mjs";
import { drawPassage, furtherOf, isBefore } from "./language.mjs";
import { drawSeries } from "./series.mjs";
import { drawSignal } from "./signals.mjs";
import { stage } from "./stage.mjs";
import { drawText } from "./texts.mjs";
import { drawTranslation } from "./translation.mjs";

const whole = () => 1; // where the scale of colours ends

/** The picture of a run; `beside` is what stands under it, as `stage` takes it. */
export function viewOf(run, beside = null) {
  if (run.kind === "signals") return stage(run, drawSignal(), { top: whole, beside });
  if (run.kind === "texts") return stage(run, drawText(run), { beside });
  if (run.kind === "images") return stage(run, drawImage(run), { beside });
  if (run.kind === "series") return stage(run, drawSeries(run), { top: whole, beside });
  if (run.kind === "translation") return stage(run, drawTranslation(), { top: whole, beside });
  const options = { visible: isBefore, masked: true, top: whole, beside };
  const parts = run.attention.length ? [stage(run, drawPassage(), options)] : [];
  return el("div", {}, parts, furtherOf(run.examples[0]));
}
