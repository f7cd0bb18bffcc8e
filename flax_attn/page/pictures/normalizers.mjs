// The normalisers as formulas with numbers: weights of one row of scores, already over T.

const KEPT = 3; // keys of top-k

import { sumOf } from "../lists.mjs";

const largestOf = (scores) => Math.max(...scores);
const exponentials = (scores) => scores.map((score) => Math.exp(score - largestOf(scores)));
const signed = (number) => number.toFixed(2).replace("-", "−");
const exponential = (score, scores) => `exp(${signed(score - largestOf(scores))})`;
const short = (sum) => sum.toFixed(3); // as many digits as the weights that it divides into have

/** The threshold `tau` of sparsemax: the weights `max(score - tau, 0)` add up to 1. */
function sparsemaxThreshold(scores) {
  const falling = [...scores].sort((a, b) => b - a);
  let [sum, tau] = [0, 0];
  for (const [i, score] of falling.entries()) {
    sum += score;
    const own = (sum - 1) / (i + 1);
    if (score > own) tau = own;
  }
  return tau;
}

/** The threshold of entmax-1.5: the weights `max(score / 2 - tau, 0)^2` add up to 1. */
function entmaxThreshold(scores) {
  let [low, high] = [largestOf(scores) / 2 - 1, largestOf(scores) / 2];
  for (let i = 0; i < 60; i++) {
    const middle = (low + high) / 2;
    if (sumOf(scores.map((score) => Math.max(score / 2 - middle, 0) ** 2)) > 1) low = middle;
    else high = middle;
  }
  return low;
}

function best(scores, count) {
  const order = [...scores.keys()].sort((i, j) => scores[j] - scores[i] || i - j);
  return new Set(order.slice(0, count));
}

/** The weights of a normaliser, and its curve: the weights that other scores would have. */
const byCurve = (curve) => ({ weights: (scores) => curve(scores, scores), curve });

function topScores(scores) {
  const kept = best(scores, KEPT);
  return scores.filter((_, i) => kept.has(i));
}

const softmax = {
  name: "softmax",
  formula: "weight = exp(score / T − largest) / sum of these",
  ...byCurve((steps, scores) => {
    const [top, sum] = [largestOf(scores), sumOf(exponentials(scores))];
    return steps.map((score) => Math.exp(score - top) / sum);
  }),
  term: (divided, score, scores) => {
    const sum = short(sumOf(exponentials(scores)));
    return `score ${divided}: ${exponential(score, scores)} / ${sum}`;
  },
};

const entmax15 = {
  name: "entmax-1.5",
  formula: "weight = max(score / 2T − τ, 0)²",
  ...byCurve((steps, scores) => {
    const tau = entmaxThreshold(scores);
    return steps.map((score) => Math.max(score / 2 - tau, 0) ** 2);
  }),
  term: (divided, score, scores) =>
    `max(½ · ${divided} − τ, 0)² with τ ${signed(entmaxThreshold(scores))}`,
};

const sparsemax = {
  name: "sparsemax",
  formula: "weight = max(score / T − τ, 0)",
  ...byCurve((steps, scores) => {
    const tau = sparsemaxThreshold(scores);
    return steps.map((score) => Math.max(score - tau, 0));
  }),
  term: (divided, score, scores) =>
    `max(${divided} − τ, 0) with τ ${signed(sparsemaxThreshold(scores))}`,
};

const topK = {
  name: "top-k",
  formula: `softmax of the ${KEPT} largest scores, 0 for the others`,
  weights: (scores) => {
    const kept = best(scores, KEPT);
    const sum = sumOf(exponentials(topScores(scores)));
    return scores.map((score, i) => (kept.has(i) ? Math.exp(score - largestOf(scores)) / sum : 0));
  },
  curve: (steps, scores) => {
    const least = Math.min(...topScores(scores));
    const sum = sumOf(exponentials(topScores(scores)));
    return steps.map((score) => (score < least ? 0 : Math.exp(score - largestOf(scores)) / sum));
  },
  term: (divided, score, scores) => {
    const top = topScores(scores);
    if (score < Math.min(...top)) return `score ${divided}, not among the ${KEPT} best`;
    const sum = short(sumOf(exponentials(top)));
    return `score ${divided}: ${exponential(score, scores)} / ${sum}`;
  },
};

const hard = {
  name: "hard",
  formula: "weight = 1 for the largest score, 0 for the others",
  weights: (scores) => {
    const kept = best(scores, 1);
    return scores.map((_, i) => (kept.has(i) ? 1 : 0));
  },
  curve: (steps, scores) => steps.map((score) => (score < largestOf(scores) ? 0 : 1)),
  term: (divided, score, scores) =>
    score < largestOf(scores)
      ? `score ${divided}, not the largest`
      : `score ${divided}, the largest`,
};

export const normalizers = { softmax, entmax15, sparsemax, top_k: topK, hard };
