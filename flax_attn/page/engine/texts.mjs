// Texts of language models that read characters: a text to tokens, and the last one's attention.

import { range } from "../lists.mjs";

/**
 * The tokens of a text, its last ones where it is long.
 * @returns {{ids: number[], written: string[], note: string|null} | {error: string}}
 */
export function readCharacters(rule, text) {
  const { entries, codes, first, start, always, most } = rule;
  // A page shows entries with escapes, so characters are known by their code points.
  const numbers = new Map(codes.map((code, token) => [code, token]));
  const characters = Array.from(text);
  const tokenOf = (character) => numbers.get(character.codePointAt(0));
  const isKnown = (character) => (tokenOf(character) ?? 0) >= first;
  const unknown = [...new Set(characters)].filter((character) => !isKnown(character));
  if (unknown.length) {
    const named = unknown.slice(0, 10).map((character) => JSON.stringify(character)).join(", ");
    return { error: `expected characters that the run has seen, got ${named}; leave them out` };
  }
  const own = characters.map(tokenOf);
  const whole = always || !own.length ? [...start, ...own] : own;
  const ids = whole.slice(-most);
  const note = whole.length > most ? `the model reads the last ${most} tokens` : null;
  return { ids, written: ids.map((token) => entries[token]), note };
}

/** The code points that a token writes; null for one that stands for no character. */
export const writtenBy = ({ codes, first }, token) =>
  token >= first && codes[token] !== null ? [codes[token]] : null;

/** Of an array (heads, q, k) the row of the last token, without the keys after it. */
export function rowOfLast({ shape, data }, count) {
  const [heads, queries, keys] = shape;
  const rows = range(heads).map((head) => {
    const from = (head * queries + count - 1) * keys;
    return data.slice(from, from + count);
  });
  return { shape: [heads, 1, count], data: rows.flat() };
}
