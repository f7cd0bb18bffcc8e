// What the page knows of each kind of task. The module of a kind in views/ adds it here.

const KINDS = new Map();

/**
 * Adds a kind of task, by the name that runs have for it:
 *
 * - `picture(run, beside)`: the picture of its examples; `beside` stands under it, as in `stage`.
 * - `tried(parts)`: the view of an input that is changed, as `tryIt` describes it.
 * - `stored`: for examples that a model in the page takes, what it takes for one,
 *   `inputs(run, example)`, and the parts that are hidden in turn, `parts(run, example, weights)`.
 * - `kept(run, example)`: what the run has kept of its answer, as a reply; shown until the model
 *   answers, or null.
 * - `together(runs)`: pictures of several runs side by side, where the kind has them.
 */
export function addKind(name, own) {
  KINDS.set(name, { stored: null, kept: () => null, together: () => [], ...own });
}

/** The kind of a run. */
export function kindOf({ name, kind }) {
  const own = KINDS.get(kind);
  if (own) return own;
  const known = [...KINDS.keys()].sort().join(", ");
  const how = `write views/${kind}.mjs and join it into the page`;
  throw new Error(`expected a kind of task among ${known}, got ${kind} of the run ${name}; ${how}`);
}
