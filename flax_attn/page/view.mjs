// The view of a run that answers: an input to change, the weights on it, and the prediction.

import { exampleChooser, headChooser } from "./controls/choosers.mjs";
import { isBetween, isVisible } from "./controls/settings.mjs";
import { capital, div, el } from "./dom.mjs";
import { indexOfLargest } from "./lists.mjs";
import { evidenceRow } from "./pictures/effects.mjs";
import { mostOn, rowOf, weightText } from "./pictures/heat.mjs";
import { inputOf, targetOf } from "./views.mjs";

/**
 * The view for `tryIt`. An input is made of `{run, runs, asks, state, heads, evidence, answer,
 * changed, hide, forget, choose, again, beginWith}`, where `state.query` is the chosen query, or
 * null for the mean, and `choose(q)` changes it. It has:
 *
 * - `title`, `node`: what is changed; `pictured`, `picture`: where weights are shown; `look`,
 *   `part`: the classes of both; or `layout()`, which places everything.
 * - `begin(example)`, `value()`: the first input, and what is asked.
 * - `show(reply, weights)`: draws a reply; `parts(weights, reply)`: the parts masked in turn.
 * - `query(weights)`: `{q, at, name}`: the row of the chosen query, its position among the keys
 *   (null where one query stands for all) and its name; `key(k)`: the name of a key.
 * - `hint`, `most`, and perhaps `say(replies)`, `goal()`, `add(codes)`, `slot`, `after`, `more()`,
 *   `restore(inputs)`, which takes what `value()` returned.
 *
 * An answer has `{node, title, show(replies, goal), said(reply, goal)}` and perhaps `begin()`,
 * `chosen(reply)`, the part of a reply that holds the weights, and `keys`, which are drawn there.
 */
export function viewOf(parts) {
  const { runs, asks, again } = parts;
  const [run] = runs;
  const { head } = inputOf(run);
  const hasAttention = run.attention.length > 0;
  const state = { replies: null, settings: null, request: null, asked: null, query: null };
  const heads = headChooser(run, again, hasAttention && head ? head(run) : null);
  const evidence = evidenceRow(asks[0]);
  const choose = (q) => {
    if (q === state.query) return;
    state.query = q;
    again();
  };
  const own = { ...parts, run, state, heads, evidence, choose };
  own.answer = targetOf(run).tried(own);
  const { answer } = own;
  const input = inputOf(run).tried(own);
  own.input = input;
  const chosen = (reply) => answer.chosen?.(reply) ?? reply;
  const weightsNow = () => state.replies && heads.weights(chosen(state.replies[0]));
  const goal = () => input.goal?.() ?? null;

  function show(replies, settings, request) {
    Object.assign(state, { replies, settings, request });
    answer.show(replies, goal());
    const weights = weightsNow();
    input.show(replies[0], weights);
    const asked = JSON.stringify([request, heads.now]);
    if (!weights || answer.keys || asked === state.asked) return;
    state.asked = asked; // once for each request, not for each query that is pointed at
    evidence.show({ ...input.parts(weights, replies[0]), signed: weights.signed, ...request });
  }

  function say(replies) {
    const said = input.say?.(replies);
    if (said) return said;
    const lines = runs.map((other, i) => {
      const text = answer.said(replies[i], goal());
      return text && `${runs.length > 1 ? other.name : answer.title}: ${text}.`;
    });
    return [...lines, runs.length > 1 ? null : most()].filter(Boolean).join(" ");
  }

  /** What the chosen query attends to most, or all of them on average. */
  function most() {
    const weights = weightsNow();
    if (!weights?.rows) return null;
    const isMean = weights.rows === 1 || state.query === null;
    const row = rowOf(weights, isMean ? null : input.query(weights).q);
    const best = indexOfLargest(row.map(Math.abs));
    const [key, weight, { signed }] = [input.key(best), row[best], weights];
    if (!isMean) {
      const { name } = input.query(weights);
      return `${capital(name)} ${mostOn(key, weight, signed, "attends most to", "")}.`;
    }
    const strongest = `The strongest weight${weights.rows > 1 ? ", on average," : ""} is on`;
    const most = signed ? strongest : "Most attention is on";
    return `${most} ${key}, ${weightText(weight, signed)}.`;
  }

  function query() {
    const weights = weightsNow();
    if (!weights?.rows) return null;
    const { q, at, name } = input.query(weights);
    const { hidden } = state.settings;
    return {
      what: name,
      weights,
      scores: heads.scores(chosen(state.replies[0])),
      q,
      visible: (k) => (at === null ? !hidden.includes(k) : isVisible(at, k, state.settings)),
      key: input.key,
    };
  }

  function begin(i) {
    state.query = null;
    answer.begin?.();
    input.begin(run.examples[i]);
  }

  function layOut() {
    const box = (title, part, ...nodes) =>
      el("div", { class: part }, title ? el("h3", {}, title) : null, nodes);
    const shown = answer.keys ? null : box(input.pictured, input.part, input.picture, heads.node);
    return div(
      exampleChooser(run, parts.beginWith),
      el("div", { class: input.look },
        box(input.title, "", input.node), shown,
        box(answer.keys ? null : answer.title, input.part, answer.node),
      ),
      hasAttention && !answer.keys ? evidence.node : null,
    );
  }

  return {
    node: input.layout?.() ?? layOut(),
    hint: input.hint,
    slot: input.slot,
    after: input.after,
    most: input.most,
    between: run.target !== "text" && isBetween(run),
    ordered: run.target === "next",
    input: () => input.value(),
    more: () => input.more?.() ?? {},
    restore: (inputs) => input.restore?.(inputs),
    begin, show, say, query,
  };
}
