// Published models: nothing is told of a training. Heads are small pictures, and each can be cut.

import { textField } from "./controls/choosers.mjs";
import { paperToDraw } from "./controls/paper.mjs";
import { isVisible } from "./controls/settings.mjs";
import { el, percent, replaceButtons } from "./dom.mjs";
import { addKind } from "./kinds.mjs";
import { indexOfLargest, range } from "./lists.mjs";
import { effectsOf, effectsRow } from "./pictures/effects.mjs";
import { points } from "./pictures/evidence.mjs";
import { headGrid, headName, mostTelling } from "./pictures/head_grid.mjs";
import { headOf, inColours, mapOf, movingLegend, rowOf, scoresIn } from "./pictures/heat.mjs";
import { headsOf, unpack, weightsIn } from "./pictures/heat.mjs";
import { tokenPath } from "./pictures/path.mjs";
import { bars, lineEnd, sign, words } from "./pictures/words.mjs";
import { paintPixels } from "./views/images.mjs";

const OFFERED_NEXT = 5; // next tokens that a button writes
const MOST_BEST = 8; // classes that are shown
const ZOOM = 4; // of the image that the model sees
const CUT_SAYS_0 =
  "Press a head to cut it. A head that is cut says 0, which no input makes it say, so a small " +
  "model may break more than the head is worth.";

const written = (token) => sign(lineEnd(token));

/** A text to type: `{node, value(), begin()}`. */
function textInput(run, onInput) {
  const { node, area } = textField("your text", 3, onInput);
  const begin = () => {
    area.value = run.text;
  };
  const add = (codes) => {
    area.value += String.fromCodePoint(...codes);
  };
  return { node, begin, add, value: () => ({ text: area.value }) };
}

/** A ring, which is drawn for a beginning. */
function ring(side) {
  return Float32Array.from({ length: side * side }, (_, i) => {
    const [y, x] = [Math.floor(i / side), i % side].map((own) => (own + 0.5) / side - 0.5);
    return Math.abs(Math.hypot(x, y) - 0.28) < 0.06 ? 1 : 0;
  });
}

/** An image to draw, dark on light, or one of a file: `{node, value(), begin(), image()}`. */
function imageInput(run, onInput) {
  const { side } = run;
  const state = { ink: ring(side) };
  const paper = paperToDraw((ink, size) => {
    const at = (i) => Math.floor(((i + 0.5) * size) / side);
    state.ink = Float32Array.from({ length: side * side }, (_, i) =>
      ink[at(Math.floor(i / side)) * size + at(i % side)],
    );
    onInput();
  });
  const begin = () => {
    state.ink = ring(side);
    paper.show(state.ink, side, side);
  };
  const clear = () => {
    paper.clear();
    state.ink = new Float32Array(side * side);
    onInput();
  };
  const open = async () => {
    const [chosen] = file.files;
    if (!chosen) return;
    const canvas = el("canvas", { width: side, height: side });
    const pen = canvas.getContext("2d", { willReadFrequently: true });
    try {
      pen.drawImage(await createImageBitmap(chosen), 0, 0, side, side);
    } catch {
      return; // no image
    }
    const { data } = pen.getImageData(0, 0, side, side);
    const parts = [0.3, 0.59, 0.11]; // of red, green and blue in grey
    const light = (i) => parts.reduce((sum, part, c) => sum + part * data[4 * i + c], 0) / 255;
    state.ink = Float32Array.from({ length: side * side }, (_, i) => 1 - light(i));
    paper.show(state.ink, side, side);
    onInput();
  };
  const file = el("input", { type: "file", accept: "image/*", onchange: open });
  const wipe = el("button", { type: "button", onclick: clear }, "Clear the paper");
  const node = el(
    "div",
    {},
    el("h3", {}, "Draw here"),
    paper.node,
    el("div", { class: "row" }, wipe),
    el("label", { class: "control" }, el("span", {}, "or a picture, in grey"), file),
  );
  const numbers = () => Array.from(state.ink, (own) => Number((1 - own).toFixed(2)));
  const value = () => ({ inputs: { shape: [side, side], data: numbers() } });
  return { node, begin, value, image: () => ({ shape: [side, side], data: state.ink }) };
}

/** The view of a published model. */
function tryPublished({ runs: [run], asks: [ask], changed, hide, forget, pick }) {
  const isImage = run.takes === "image";
  const middle = Math.floor(run.attention.length / 2);
  const state = { reply: null, settings: null, request: null, asked: "", effects: new Map() };
  const view = { attention: middle, head: 0, token: null };
  let cut = [];
  const typed = () => {
    forget();
    view.token = null;
    changed();
  };
  const input = isImage ? imageInput(run, typed) : textInput(run, typed);
  const line = el("div", {});
  const scale = movingLegend(isImage ? "patches" : "tokens");
  const answer = el("div", {});
  const offers = el("div", { class: "row", role: "group", "aria-label": "write the next token" });
  const looked = el("canvas", { class: "published-image", role: "img" });
  const grid = headGrid(run, choose);
  const chosen = el("p", { class: "hint", "aria-live": "polite" });
  const map = el("div", {});
  const summary = el("summary", {}, "Its whole map");
  const details = el("details", { class: "behind", open: true }, summary, map);
  details.addEventListener("toggle", drawMap);
  const path = tokenPath();
  const all = el("button", { type: "button", onclick: cutEach }, "Cut each head of all blocks");
  const progress = el("span", { class: "hint", role: "status" });
  const ofHeads = effectsRow(ask, {
    label: "heads of the block",
    atOnce: run.at_once,
    hint: CUT_SAYS_0,
    onPress: (head) => toggle(view.attention, head),
    onChange: (head, value) => keep(view.attention, head, value),
  });
  const ofParts = effectsRow(ask, {
    label: isImage ? "patches" : "tokens",
    atOnce: run.at_once,
    hint: `Press a ${isImage ? "patch" : "token"} to hide it from every head.`,
    onPress: (key) => hide([key]),
  });

  /** Begins with a head that tells something, unless one was chosen. */
  function begins(i) {
    const { heads } = run.attention[0];
    if (state.isChosen) return;
    Object.assign(view, { attention: Math.floor(i / heads), head: i % heads });
    changed();
  }

  function choose(attention, head) {
    Object.assign(view, { attention, head });
    state.isChosen = true;
    changed();
  }

  function toggle(attention, head) {
    const isOther = ([a, h]) => a !== attention || h !== head;
    cut = isCut(attention, head) ? cut.filter(isOther) : [...cut, [attention, head]];
    changed();
  }

  function keep(attention, head, value) {
    state.effects.set(`${attention},${head}`, { value, written: points(value) });
    mark();
  }

  const mark = () => grid.mark({ view, cut, effects: state.effects });

  /** `request` is what was answered. */
  function show([reply], settings, request) {
    Object.assign(state, { reply, settings, request });
    const looks = weightsIn(reply, nameIn(reply), 0);
    const tokens = reply.tokens.map(lineEnd);
    if (isImage) showImage(looks, settings);
    else showTokens(tokens, looks, settings);
    showAnswer(reply);
    unpack(reply.maps).then((maps) => {
      if (state.reply !== reply) return;
      const heads = headsOf(maps);
      grid.show(heads);
      // many heads that have nothing to say look at the first token
      const isTelling = (q, k) => isImage || (k > 0 && k !== q);
      if (!state.hasBegun) begins(mostTelling(heads, isTelling));
      state.hasBegun = true;
    });
    chosen.textContent = `Chosen: ${headIn(reply)}.`;
    drawMap();
    path.show(reply, nameIn(reply), tokens);
    const asked = JSON.stringify([request.inputs, settings]);
    const isNew = asked !== state.asked;
    const isOther = isNew || state.block !== reply.view.attention;
    if (isNew) state.effects = new Map();
    Object.assign(state, { asked, block: reply.view.attention });
    mark();
    if (run.has_answer && isOther) measure(reply, settings, request, isNew);
  }

  const nameIn = (reply) => run.attention[reply.view.attention].name;
  const headIn = ({ view: own }) => headName(run, own.attention, own.head);

  /** What cutting each head of the block does, and then what hiding each part does. */
  async function measure(reply, settings, { inputs }, isNew) {
    const [[best]] = reply.classes;
    const own = { inputs, settings };
    const block = reply.view.attention;
    const heads = range(run.attention[block].heads);
    const parts = isImage ? weightsIn(reply, nameIn(reply), 0).columns : reply.tokens.length;
    const keys = range(parts);
    await ofHeads.show(
      {
        title: `What cutting each head of ${nameIn(reply)} does to`,
        best: written(best),
        names: heads.map((head) => `head ${head}`),
        changes: heads.map((head) => ({ cut: [[block, head]] })),
        off: heads.map((head) => isCut(block, head)),
      },
      own,
    );
    if (!isNew && state.parts === state.asked) return;
    if (state.reply.view.attention !== block || state.asked !== JSON.stringify([inputs, settings]))
      return;
    state.parts = state.asked;
    ofParts.show(
      {
        title: `What hiding each ${isImage ? "patch" : "token"} does to`,
        best: written(best),
        names: keys.map((key) => (isImage ? `patch ${key}` : written(reply.tokens[key]))),
        changes: keys.map((key) => ({ hidden: [key] })),
        off: keys.map((key) => settings.hidden.includes(key)),
      },
      own,
    );
  }

  /** Cuts each head of the model in turn, which may take a minute. */
  async function cutEach() {
    const { asked, request, settings } = state;
    if (request === null) return; // nothing was answered yet
    const isWanted = () => state.asked === asked && grid.node.isConnected;
    all.disabled = true;
    try {
      for (const [attention, { name, heads }] of run.attention.entries()) {
        if (!isWanted()) break;
        progress.textContent = `cutting the heads of ${name} …`;
        const left = range(heads).filter(
          (head) => !state.effects.has(`${attention},${head}`) && !isCut(attention, head),
        );
        const changes = left.map((head) => ({ cut: [[attention, head]] }));
        const tell = (first, effects) =>
          effects.forEach((value, j) => keep(attention, left[first + j], value));
        const own = { inputs: request.inputs, settings };
        const error = await effectsOf(ask, own, changes, run.at_once, isWanted, tell);
        if (error) break;
      }
    } finally {
      all.disabled = false;
    }
    progress.textContent = isWanted() ? mostOfAll() : "";
  }

  const isCut = (attention, head) => cut.some(([a, h]) => a === attention && h === head);

  function mostOfAll() {
    const sorted = [...state.effects].sort(([, a], [, b]) => Math.abs(b.value) - Math.abs(a.value));
    const named = ([key, { written }]) => {
      const [attention, head] = key.split(",");
      return `${headName(run, attention, head)} (${written})`;
    };
    return `Most changes without ${sorted.slice(0, 3).map(named).join("; ")}.`;
  }

  function showTokens(tokens, looks, settings) {
    const own = words("the text; press a token to see what it looks at", tokens, {
      onPick: (token) => {
        view.token = token;
        changed();
      },
    });
    const { token } = state.reply.view;
    const whole = run.takes === "prompt" ? token + 1 : tokens.length;
    const count = Math.max(whole - settings.hidden.length, 1);
    own.show(rowOf(looks, 0), count);
    own.hide(settings.hidden);
    own.pick(token);
    scale.to(count, settings.hidden.length > 0);
    replaceButtons(line, own.node);
  }

  function showImage(looks, settings) {
    const row = rowOf(looks, 0);
    const columns = Math.round(Math.sqrt(row.length));
    const patches = { size: run.side / columns, columns };
    const count = Math.max(row.length - settings.hidden.length, 1);
    const image = input.image();
    inColours(looked, () => paintPixels(looked, image, patches, row, count, ZOOM));
    const best = indexOfLargest(row);
    looked.setAttribute("aria-label", `what the model sees; most weight is on patch ${best}`);
    scale.to(count, settings.hidden.length > 0);
  }

  function showAnswer({ classes, writes }) {
    if (!run.has_answer) return;
    const named = ([name, share]) => [isImage ? name : written(name), share];
    answer.replaceChildren(bars(classes.slice(0, MOST_BEST).map(named)));
    if (!writes) return;
    const usable = classes.slice(0, OFFERED_NEXT).map(([name], i) => [name, writes[i]]);
    const buttons = usable
      .filter(([, codes]) => codes !== null)
      .map(([name, codes]) => {
        const onclick = () => {
          input.add(codes);
          view.token = null;
          changed();
        };
        return el("button", { type: "button", onclick }, `+ ${written(name)}`);
      });
    offers.replaceChildren(...buttons);
  }

  /** The whole map of the head, once it is wanted. */
  async function drawMap() {
    const { reply } = state;
    if (!details.open || !reply) return;
    const weights = headOf(await unpack(reply.map), 0);
    const tokens = reply.tokens.map(lineEnd);
    const isWhole = weights.rows === tokens.length;
    const names = isWhole ? tokens : range(41).map(() => ""); // coarse: no names
    const isBefore = run.takes === "prompt" ? (q, k) => k <= q : undefined;
    const drawn = mapOf(names, weights, () => {}, { visible: isBefore });
    drawn.point(null);
    map.replaceChildren(drawn.node);
  }

  function say([reply]) {
    const { classes, tokens } = reply;
    const [[name, share]] = classes;
    const does = { prompt: "the likeliest next is", text: "the likeliest is", image: "it sees" };
    const label = isImage ? name : written(name);
    const first = `Here ${does[run.takes]} “${label}”, ${percent(share)}. `;
    const said = run.has_answer ? first : "";
    const row = rowOf(weightsIn(reply, nameIn(reply), 0), 0);
    const best = indexOfLargest(row);
    const from = isImage ? "the whole image" : `“${written(tokens[reply.view.token])}”`;
    const to = isImage ? `patch ${best}` : `“${written(tokens[best])}”`;
    return `${said}In ${headIn(reply)}, ${from} looks most at ${to}, with ${percent(row[best])}.`;
  }

  function query() {
    const { reply, settings } = state;
    const scores = reply && scoresIn(reply, nameIn(reply), 0);
    if (!scores) return null;
    const { token } = reply.view;
    const causal = settings.causal || run.takes === "prompt";
    return {
      what: `“${written(reply.tokens[token])}”`,
      weights: weightsIn(reply, nameIn(reply), 0),
      scores,
      q: 0,
      visible: (k) => isVisible(token, k, { ...settings, causal }),
      key: (k) => `“${written(reply.tokens[k])}” at ${k}`,
    };
  }

  const begin = () => {
    cut = [];
    view.token = null;
    input.begin();
  };
  mark();
  const heading = run.takes === "prompt" ? "What comes next" : "Its answer";
  const answers = run.has_answer ? [el("h3", {}, heading), offers, answer] : [];
  const boxOf = (nodes) => el("div", {}, nodes);
  const effects = [ofHeads.node, el("div", { class: "row" }, all, progress), ofParts.node];
  const image = [el("h3", {}, "What it sees, and where the head looks"), looked, scale.node];
  return {
    node: el(
      "div",
      {},
      isImage
        ? el("div", { class: "try-drawing" }, input.node, [image, answers].map(boxOf))
        : [input.node, line, scale.node, answers],
      el("h3", {}, "The heads"),
      el("div", { class: "beside" }, grid.node, el("div", {}, chosen, isImage ? null : details)),
      run.has_answer ? effects : null,
    ),
    after: path.node,
    hint: isImage
      ? "Draw, or choose a picture. Choose a head: each looks for something else. Cut it, and " +
        "see the answer change."
      : "Type, and press a token to see what it looks at. Choose a head: each looks for " +
        "something else. Cut it, and see the answer change.",
    most: isImage ? 1 : 33,
    between: !isImage,
    ordered: run.takes === "prompt",
    hasScores: !isImage,
    input: () => input.value(),
    more: () => ({ view: { ...view }, settings: cut.length ? { cut } : {} }),
    begin,
    show,
    say,
    query,
  };
}

addKind("published", { picture: () => el("div", {}), tried: tryPublished });
