// What the page knows of inputs and of targets. A module in inputs/ or targets/ adds its own here.

const INPUTS = new Map();
const TARGETS = new Map();

/**
 * Adds an input by the name that runs have for it:
 *
 * - `picture(run, beside)`: the picture of the examples; `beside` stands under it, as in `stage`.
 * - `tried(own)`: an input to change, as `viewOf` takes it.
 * - `kept(run, example)`: its part of a reply, as the run has kept it.
 * - `stored(run, example)`: the request of an example, where a model in the page takes it; and
 *   `parts(run, example, weights)`, the parts that are masked in turn.
 * - `named(example)`: the text that an example is chosen by, where it has one.
 * - `head(run)`: the head to begin with, by its index in `allHeads`.
 * - `together(runs)`: pictures of several runs side by side.
 * - `view(parts)`: a view of its own in place of `viewOf`.
 */
export const addInput = (name, own) => INPUTS.set(name, own);

/**
 * Adds a target by the name that runs have for it:
 *
 * - `verdict(run, example)`: a line on the prediction of an example, or null.
 * - `beside(run, example, options)`: a picture of the prediction beside the input, or null.
 * - `kept(run, example)`: its part of a reply, as the run has kept it.
 * - `tried(own)`: the prediction of a changed input, as `viewOf` takes it.
 */
export const addTarget = (name, own) => TARGETS.set(name, own);

export const inputOf = ({ input }) => INPUTS.get(input);
export const targetOf = ({ target }) => TARGETS.get(target);

/** What a run has kept of an example, as a reply. */
export function keptReply(run, example) {
  const common = { attention: example.attention, scores: null };
  const input = inputOf(run).kept?.(run, example);
  return { ...common, ...input, ...targetOf(run).kept(run, example) };
}
