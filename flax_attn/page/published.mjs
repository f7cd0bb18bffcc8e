// Published models, without a training: all heads and the map of one, a text or an image, the
// answer, and the path of a token. One query is selected, and all parts are about it.

import { textField } from "./controls/choosers.mjs";
import { drawnImage } from "./controls/paper.mjs";
import { isVisible } from "./controls/settings.mjs";
import { buttonOf, div, el, keepHeight, percent, replaceButtons, scrollBox } from "./dom.mjs";
import { paintPixels } from "./inputs/image.mjs";
import { range, sumOf } from "./lists.mjs";
import { ABLATED, effectsOf, effectsRow, mostOf } from "./pictures/effects.mjs";
import { headGrid, headName, placesOfHeads, telling } from "./pictures/head_grid.mjs";
import { headOf, headsOf, heatMap, inColours, largest, legend } from "./pictures/heat.mjs";
import { MOST_NAMED, mostOn, movingLegend, putsOn, rowOf, scoresIn } from "./pictures/heat.mjs";
import { signedTop, topOf, unpack, weightsIn } from "./pictures/heat.mjs";
import { largestPairs, tokenPath } from "./pictures/path.mjs";
import { bars, lineEnd, naming, sign, words } from "./pictures/words.mjs";
import { writeButtons, written } from "./targets/next.mjs";
import { addInput } from "./views.mjs";

const MOST_BEST = 8; // classes that are shown
const AXES = ["query", "key"];

const hint = (text) => el("p", { class: "hint" }, text);

/** A text to type: `{node, value(), begin(), add(codes)}`. */
function textInput(run, onInput) {
  const { node, area } = textField("The text", 2, onInput);
  return {
    node,
    begin: () => {
      area.value = run.text;
    },
    add: (codes) => {
      area.value += String.fromCodePoint(...codes);
    },
    value: () => ({ text: area.value }),
    restore: ({ text }) => {
      area.value = text;
    },
  };
}

/** A ring, which is drawn for a beginning. */
function ring(side) {
  return range(side * side).map((i) => {
    const [y, x] = [Math.floor(i / side), i % side].map((own) => (own + 0.5) / side - 0.5);
    return Math.abs(Math.hypot(x, y) - 0.28) < 0.06 ? 1 : 0;
  });
}

/** The ink of a picture in a file, whose colours become grey; null for what is no picture. */
async function inkOf(file, side) {
  const canvas = el("canvas", { width: side, height: side });
  const pen = canvas.getContext("2d", { willReadFrequently: true });
  try {
    pen.drawImage(await createImageBitmap(file), 0, 0, side, side);
  } catch {
    return null;
  }
  const { data } = pen.getImageData(0, 0, side, side);
  const parts = [0.3, 0.59, 0.11]; // of red, green and blue in grey
  const light = (i) => sumOf(parts.map((part, c) => part * data[4 * i + c])) / 255;
  return range(side * side).map((i) => 1 - light(i));
}

/** An image to draw, dark on light, or one of a file: `{node, value(), begin(), image()}`. */
function imageInput({ side }, onInput) {
  const image = { shape: [side, side], data: [] };
  const take = (ink) => {
    image.data = ink;
    onInput();
  };
  const drawing = drawnImage(image.shape, take);
  const begin = () => {
    image.data = ring(side);
    drawing.show(image);
  };
  const open = async () => {
    const ink = file.files[0] && (await inkOf(file.files[0], side));
    if (!ink) return;
    drawing.show({ ...image, data: ink });
    take(ink);
  };
  const file = el("input", { type: "file", accept: "image/*", onchange: open });
  const choice = el("label", { class: "control" }, el("span", {}, "or a picture, in grey"), file);
  const node = div(drawing.node, choice);
  const numbers = () => image.data.map((ink) => Number((1 - ink).toFixed(2)));
  const value = () => ({ inputs: { shape: image.shape, data: numbers() } });
  return { node, begin, value, image: () => image };
}

/** The view of a published model. */
function tryPublished({ runs: [run], asks: [ask], changed, hide, forget, again }) {
  const isImage = run.takes === "image";
  const isPair = run.takes === "source"; // and the text that is written for it
  const ofSource = isPair ? "token of the source" : "token";
  const middle = Math.floor(run.attention.length / 2);
  const state = { reply: null, token: null, asked: "", effects: new Map() }; // what is shown
  // what is asked
  const view = { attention: middle, head: 0, token: null, source: null, key: null };
  let opening = null; // the query of the first view
  let cut = [];
  const typed = () => {
    forget();
    view.source = null;
    look(null, null, "token");
  };
  /** The name in the view of the query of an attention. */
  const nameOfQuery = ({ attention }) =>
    isPair && run.attention[attention].queries === "tokens" ? "source" : "token";
  const look = (token, key = null, name = nameOfQuery(view)) => {
    const isShown = token !== null && token === view[name] && key === null;
    Object.assign(view, { [name]: token, key });
    if (isShown) again();
    else changed();
  };
  const input = isImage ? imageInput(run, typed) : textInput(run, typed);
  const line = div();
  const scale = movingLegend(isImage ? "patches" : "tokens");
  const answer = div();
  const offers = writeButtons((codes) => {
    input.add(codes);
    look(null);
  });
  const looked = el("canvas", { class: "published-image", role: "img" });
  const grid = headGrid(run, choose);
  const heading = el("h2", {}, "The map of a head");
  const picture = div();
  const end = div();
  const reasons = div();
  let map = null; // of these tokens
  const path = tokenPath(run);
  const all = buttonOf("Ablate each head of all blocks", cutEach);
  const progress = el("span", { class: "hint", role: "status" });
  const ofHeads = effectsRow(ask, {
    label: "heads of the block",
    atOnce: run.at_once,
    hint: ABLATED,
    onPress: (head) => toggle(view.attention, head),
    onChange: (head, value) => keep(view.attention, head, value),
  });
  const ofParts = effectsRow(ask, {
    label: isImage ? "patches" : "tokens",
    atOnce: run.at_once,
    hint: `Press a ${isImage ? "patch" : ofSource} to mask it in every head.`,
    onPress: (key) => hide([key]),
  });

  /** Begins with a head and a query that tell something, and asks for them. */
  async function begins(reply) {
    state.hasBegun = true;
    const isToBegin = ([place]) => !isPair || run.attention[place].path === "cross_attention";
    const heads = (await headsIn(reply)).filter((_, i) => isToBegin(placesOfHeads(run)[i]));
    const places = placesOfHeads(run).filter(isToBegin);
    const [queries, keys] = sidesIn(reply, places[0][0]);
    const [down, across] = sizesOfCell(queries, keys, heads[0]);
    const words = isImage ? null : keys.filter((_, i) => i % across === 0);
    const { head, q } = telling(heads, words, !isImage && !isPair);
    [view.attention, view.head] = places[head];
    view.token = opening = isImage ? null : down * q;
    changed();
  }

  function choose(attention, head) {
    Object.assign(view, { attention, head, key: null });
    state.hasBegun = true;
    changed();
  }

  function toggle(attention, head) {
    const isOther = ([a, h]) => a !== attention || h !== head;
    cut = isCut(attention, head) ? cut.filter(isOther) : [...cut, [attention, head]];
    changed();
  }

  function keep(attention, head, value) {
    state.effects.set(`${attention},${head}`, value);
    mark();
  }

  const mark = () => grid.mark({ view, cut, effects: state.effects });

  /** `request` is what was answered. The first answer is the choice of what to show. */
  function show([reply], settings, request) {
    if (!state.hasBegun) return begins(reply);
    const token = reply.view[nameOfQuery(reply.view)];
    Object.assign(state, { reply, settings, request, token });
    const weights = weightsIn(reply, nameIn(reply), 0);
    const [queries, keys] = sidesIn(reply, reply.view.attention);
    const at = naming(isImage ? null : keys, "patch");
    const key = Math.min(view.key ?? largest(weights, 0), weights.columns - 1);
    const ofToken = isImage ? "the class token" : naming(queries)(token);
    Object.assign(state, { weights, at, marked: key, ofToken, queries, keys });
    if (isImage) showImage(weights, settings);
    else showTokens(reply, weights, settings);
    showAnswer(reply);
    heading.textContent = `Head ${reply.view.head} of ${nameIn(reply)}`;
    if (!isImage) drawMap();
    path.show(reply, run.attention[reply.view.attention], { of: ofToken, at, key, isSeen });
    const pairs = view.key === null ? null : reply.path.pairs;
    reasons.replaceChildren(largestPairs(pairs, ofToken, at(key)));
    changes.hidden = false;
    const asked = JSON.stringify([request.inputs, settings, isPair && reply.view.token]);
    const isNew = asked !== state.asked;
    const isOther = isNew || state.block !== reply.view.attention;
    if (isNew) state.effects = new Map();
    Object.assign(state, { asked, block: reply.view.attention });
    if (isNew) headsIn(reply).then((heads) => state.asked === asked && grid.show(heads));
    mark();
    if (run.has_answer && isOther) measure(reply, settings, request, isNew);
  }

  /** All heads of a reply as small maps. */
  async function headsIn({ maps }) {
    const unpacked = await Promise.all(maps.map(unpack));
    return unpacked.flatMap((own, i) => headsOf({ ...own, signed: isSigned(i) }));
  }

  /** How many tokens a row and a column of a map stand for. */
  const sizesOfCell = (queries, keys, { rows, columns }) =>
    [[queries, rows], [keys, columns]]
      .map(([own, cells]) => Math.max(Math.ceil(own.length / cells), 1));

  /** The tokens of the queries and of the keys of an attention. */
  const sidesIn = (reply, attention) =>
    ["queries", "keys"].map((side) => reply[run.attention[attention][side]].map(lineEnd));

  const isSigned = (attention) => run.attention[attention].signed;
  const nameIn = (reply) => run.attention[reply.view.attention].name;

  /** The effects of ablating each head of the block, and then of masking each part. */
  async function measure(reply, settings, { inputs }, isNew) {
    const [[best]] = reply.classes;
    const own = { inputs, settings, view: reply.view };
    const { asked } = state;
    const block = reply.view.attention;
    const heads = range(run.attention[block].heads);
    const keys = range(isImage ? state.weights.columns : reply.tokens.length);
    const common = { best: written(best) };
    const ofBlock = {
      ...common,
      title: `Effect of ablating each head of ${nameIn(reply)} on`,
      names: heads.map((head) => `head ${head}`),
      changes: heads.map((head) => ({ cut: [[block, head]] })),
      off: heads.map((head) => isCut(block, head)),
    };
    await ofHeads.show(ofBlock, own);
    if (!isNew && state.parts === state.asked) return;
    if (state.reply.view.attention !== block || state.asked !== asked) return;
    state.parts = state.asked;
    const ofKeys = {
      ...common,
      title: `Effect of masking each ${isImage ? "patch" : ofSource} on`,
      names: keys.map((key) => (isImage ? `patch ${key}` : written(reply.tokens[key]))),
      changes: keys.map((key) => ({ hidden: [key] })),
      off: keys.map((key) => settings.hidden.includes(key)),
    };
    ofParts.show(ofKeys, own);
  }

  /** Ablates each head of the model in turn, which may take a minute. */
  async function cutEach() {
    const { asked, reply, request, settings } = state;
    const isWanted = () => state.asked === asked && grid.node.isConnected;
    all.disabled = true;
    for (const [attention, { name, heads }] of run.attention.entries()) {
      if (!isWanted()) break;
      progress.textContent = `ablating the heads of ${name} …`;
      const left = range(heads).filter(
        (head) => !state.effects.has(`${attention},${head}`) && !isCut(attention, head),
      );
      const changes = left.map((head) => ({ cut: [[attention, head]] }));
      const tell = (first, effects) =>
        effects.forEach((value, j) => keep(attention, left[first + j], value));
      const own = { inputs: request.inputs, settings, view: reply.view };
      const error = await effectsOf(ask, own, changes, run.at_once, isWanted, tell);
      if (error) break;
    }
    all.disabled = false;
    progress.textContent = isWanted() ? mostOfAll() : "";
  }

  const isCut = (attention, head) => cut.some(([a, h]) => a === attention && h === head);

  function mostOfAll() {
    const names = [...state.effects.keys()].map((key) => [key, headName(run, ...key.split(","))]);
    return mostOf(Object.fromEntries(names), state.effects);
  }

  /** The text, or the source, what is written, and what is read where that is attended to. */
  function showTokens(reply, weights, settings) {
    const { queries, keys } = run.attention[reply.view.attention];
    const hidden = keys === "read" ? [] : settings.hidden;
    const whole = isOrdered() ? state.token + 1 : weights.columns;
    const count = Math.max(whole - hidden.length, 1);
    const ofPair = [["tokens", "The source"], ["read", "What the decoder has read"],
      ["target", "What is written"]];
    const lines = (isPair ? ofPair : [["tokens", "the text"]]).filter(
      ([side]) => side !== "read" || keys === "read");
    const nodes = lines.flatMap(([side, label]) => {
      // a written token is also the one that the answer is of
      const onPick = side === "target" ? (i) => look(i, null, "token")
        : side === queries ? (i) => look(i)
        : side === keys ? (k) => look(state.token, k) : null;
      const said = `${label}; press a token to see what it attends to`;
      const own = words(said, reply[side].map(lineEnd), { onPick });
      if (side === keys) {
        own.show(rowOf(weights, 0), count, signedTop(weights));
        if (view.key !== null) own.buttons[state.marked].classList.add("selected-key");
      } else own.show(null);
      if (side === "tokens") own.hide(settings.hidden);
      if (side === queries) own.pick(state.token);
      else if (side === "target") own.pick(reply.view.token);
      return isPair ? [hint(`${label}:`), own.node] : [own.node];
    });
    scale.to(count, hidden.length > 0, signedTop(weights));
    replaceButtons(line, ...nodes);
  }

  function showImage(weights, settings) {
    const row = rowOf(weights, 0);
    const columns = Math.round(Math.sqrt(row.length));
    const patches = { size: run.side / columns, columns };
    const count = Math.max(row.length - settings.hidden.length, 1);
    const image = input.image();
    inColours(looked, () => paintPixels(looked, image, patches, row, count));
    const said = `what the model sees; most weight is on patch ${state.marked}`;
    looked.setAttribute("aria-label", said);
    scale.to(count, settings.hidden.length > 0);
  }

  function showAnswer(reply) {
    if (!run.has_answer) return;
    const named = ([name, share]) => [isImage ? name : written(name), share];
    answer.replaceChildren(bars(reply.classes.slice(0, MOST_BEST).map(named)));
    if (reply.writes) offers.show(reply);
  }

  /** Draws the whole map of the head. A click on a cell selects its query and its key. */
  async function drawMap() {
    const { reply, settings, marked, token, queries, keys } = state;
    const signed = isSigned(reply.view.attention);
    const weights = headOf({ ...(await unpack(reply.map)), signed }, 0);
    if (state.reply !== reply) return;
    const [down, across] = sizesOfCell(queries, keys, weights);
    const made = JSON.stringify([queries, keys]);
    if (state.made !== made) {
      const isNamed = Math.max(queries.length, keys.length) <= MOST_NAMED;
      const [rowNames, columnNames] = [queries, keys].map((own) => isNamed ? own.map(sign) : null);
      const onPick = (q, k) =>
        look(Math.min(q * down, queries.length - 1), Math.min(k * across, keys.length - 1));
      map = heatMap({ name: "", rowNames, columnNames, axes: AXES, onPick });
      picture.replaceChildren(isNamed ? scrollBox("The map", map.node) : map.node);
      state.made = made;
    }
    const [top, causal] = [topOf(weights), isCausal(settings)];
    const isWhole = Math.max(down, across) === 1;
    const own = isWhole ? maskIn(settings) : { hidden: [], reach: null, causal };
    const visible = (q, k) => isVisible(q, k, own);
    map.show(weights, { top, visible, name: `The weights: ${heading.textContent}` });
    map.point(Math.floor(token / down), Math.floor(marked / across));
    const isMasked = causal || own.hidden.length > 0 || own.reach !== null;
    end.replaceChildren(legend(top, isMasked, signed));
  }

  const isOfRead = () => run.attention[state.reply.view.attention].keys === "read";
  const isOrdered = () => run.takes === "prompt" || isOfRead();
  const isCausal = ({ causal }) => causal || isOrdered();
  const maskIn = (settings) =>
    ({ ...settings, causal: isCausal(settings), hidden: isOfRead() ? [] : settings.hidden });
  const isSeen = (k) => {
    const { settings, token } = state;
    return isVisible(isImage ? k : token, k, maskIn(settings));
  };

  /** What the head does at the selected query, and at the key if one is selected. */
  function say() {
    const { reply, weights, at, marked, ofToken } = state;
    if (!reply) return "";
    const head = `Head ${reply.view.head} of ${nameIn(reply)}:`;
    const weight = weights.at(0, marked);
    const isMost = view.key === null;
    if (!isMost && !isSeen(marked)) return `${head} ${ofToken} may not attend to ${at(marked)}.`;
    if (isMost && weight === 0) return `${head} ${ofToken} attends to nothing.`;
    if (!weights.signed)
      return `${head} from ${ofToken}, ${percent(weight)} of its weight is on ${at(marked)}.`;
    const most = isMost ? mostOn(at(marked), weight, true) : putsOn(at(marked), weight, true);
    return `${head} ${ofToken} ${most}.`;
  }

  function query() {
    const { reply, weights, ofToken, keys } = state;
    if (!reply) return null;
    const key = (k) => (isImage ? `patch ${k}` : `“${written(keys[k])}” at ${k}`);
    const scores = scoresIn(reply, nameIn(reply), 0);
    return { what: ofToken, weights, scores, q: 0, visible: isSeen, key };
  }

  const begin = () => {
    cut = [];
    Object.assign(view, { token: opening, source: null, key: null });
    input.begin();
  };
  mark();
  const { takes, has_answer: hasAnswer } = run;
  const part = (title, ...children) => el("figure", {}, title && el("h2", {}, title), children);
  const presses = "Rows are queries, columns are keys. " + (isPair
    ? "Rows of the decoder are the tokens that it writes. Press a cell to select both."
    : "Press a cell to see why its score is what it is.");
  const ofRows = isPair
    ? "Rows are blocks of the encoder, and of the decoder with its cross-attention to the source."
    : "Each row is a block.";
  const isRead = "Press a token to see what it attends to.";
  const left = div(
    part("The heads", hint(`Press a head to look at it. ${ofRows}`), grid.node),
    el("figure", { class: "chosen-head" }, heading,
      isImage ? [looked, scale.node] : [hint(presses), picture, end, reasons],
    ),
  );
  const own = isImage ? part("The image", hint("Draw, or choose a picture."), input.node)
    : part(null, input.node, hint(isRead), line, keepHeight(scale.node));
  const answers = { prompt: "Next token", source: "The written token" };
  const answered = answers[takes] ?? "Prediction";
  const right = div(own, hasAnswer ? part(answered, offers.node, answer) : null);
  const effects = [ofHeads.node, el("div", { class: "row" }, all, progress), ofParts.node];
  const changes = div(hasAnswer ? effects : null);
  changes.hidden = true; // until there is an answer
  const around = ({ figure, said, problem, controls, formula }) => {
    right.append(el("figure", {}, path.node, formula));
    const title = hasAnswer ? "See the answer change" : "Change the attention";
    figure.append(part(title, controls, changes));
    return [keepHeight(said), problem, figure];
  };
  return {
    node: el("div", { class: "weights-beside" }, left, right),
    most: isImage ? 1 : 33,
    between: !isImage && !isPair,
    ordered: takes === "prompt",
    input: () => input.value(),
    more: () => ({ view: { ...view }, settings: cut.length ? { cut } : {} }),
    restore: (inputs) => input.restore?.(inputs),
    begin, show, say, query, around,
  };
}

addInput("published", { view: tryPublished });
