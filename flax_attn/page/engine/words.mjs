// Texts that a model reads whole: a text to tokens by the rules of its run, and tokens to a text.

/**
 * The tokens of a text: `{ids, written, known, note}`, or `{error}`.
 * @param rule how the run reads: `rules` of preprocessing, the `parts` of a text, the `entries` and
 * their `codes` where they are characters, `most` tokens, and whether more than these are `cut`
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

const UNKNOWN = 1;

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

/** An array (heads, q, k) without padding: of `lengths` by the padded lengths of its axes. */
export function withoutPadding({ shape, data }, padded, length) {
  const [heads, queries, keys] = shape;
  const [q, k] = [queries, keys].map((size) => (size === padded ? length : size));
  const cut = [];
  for (let head = 0; head < heads; head++)
    for (let i = 0; i < q; i++) {
      const from = (head * queries + i) * keys;
      cut.push(...data.slice(from, from + k));
    }
  return { shape: [heads, q, k], data: cut };
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
