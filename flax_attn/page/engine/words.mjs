// Texts that a model reads whole: a text to tokens by the rules of its run, and tokens to a text.

import { range } from "../lists.mjs";

const UNKNOWN = 1;

/**
 * The tokens of a text: `{ids, written, known, note}`, or `{error}`.
 * @param rule how the run reads: `rules` of preprocessing, the pattern `part` of a token, `entries`
 * and their `codes` where they are characters, `ends` that stand around a text, `most` tokens, and
 * whether more than these are `cut`
 */
export function readWhole(rule, text) {
  const parts = rule.rules.reduce(applied, text).match(new RegExp(rule.part, "gu")) ?? [];
  const known = rule.codes
    ? new Map(rule.codes.map((code, token) => [String.fromCodePoint(code ?? 0), token]))
    : new Map(rule.entries.map((entry, token) => [entry, token]));
  const ids = parts.map((part) => known.get(part) ?? UNKNOWN);
  const isWord = (part, i) => ids[i] !== UNKNOWN && part.trim() && !rule.ends.includes(part);
  const seen = parts.slice(0, rule.most);
  if (!seen.some(isWord)) return { error: "expected a text with a word that the run knows" };
  const isLong = parts.length > rule.most;
  if (isLong && !rule.cut)
    return { error: `expected at most ${rule.most} tokens, got ${parts.length}` };
  const note = `the model reads the first ${rule.most} of ${parts.length} tokens`;
  return {
    ids: ids.slice(0, rule.most),
    written: seen,
    known: seen.map((_, i) => ids[i] !== UNKNOWN),
    note: isLong ? note : null,
  };
}

/** A text after one rule of preprocessing. */
function applied(text, rule) {
  if (rule.rule === "lower") return text.toLowerCase();
  const pattern = new RegExp(rule.pattern, "gu");
  if (rule.rule === "replace") return text.replace(pattern, rule.with);
  return (text.match(pattern) ?? []).join(" ");
}

/** The text of tokens of a target. */
export function writtenWhole({ entries, between, joins }, ids) {
  return joins.reduce(applied, ids.map((id) => entries[id]).join(between));
}

/** Each token of a target as it is drawn. */
export const writtenApart = ({ entries }, ids) => ids.map((id) => entries[id].trim() || " ");

/** An array (heads, q, k) of which axes of the length `padded` are cut to `length`. */
export function withoutPadding(array, padded, length) {
  const [heads, ...sizes] = array.shape;
  const [q, k] = sizes.map((size) => (size === padded ? length : size));
  const data = range(heads).flatMap((head) => oneOf(array, head, q, k).data);
  return { shape: [heads, q, k], data };
}

/** One of an array (n, q, k): its first `q` rows and `k` columns, as (1, q, k). */
export function oneOf({ shape, data }, index, q, k) {
  const [, queries, keys] = shape;
  const rows = [];
  for (let i = 0; i < q; i++) {
    const from = (index * queries + i) * keys;
    rows.push(...data.slice(from, from + k));
  }
  return { shape: [1, q, k], data: rows };
}
