// Published models, without a training. Heads are small pictures, and each can be ablated.

import { textField } from "./controls/choosers.mjs";
import { drawnImage } from "./controls/paper.mjs";
import { isVisible } from "./controls/settings.mjs";
import { buttonOf, div, el, percent, replaceButtons } from "./dom.mjs";
import { paintPixels } from "./inputs/image.mjs";
import { indexOfLargest, range, sumOf } from "./lists.mjs";
import { effectsOf, effectsRow, mostOf } from "./pictures/effects.mjs";
import { headGrid, headName, mostTelling, placesOfHeads } from "./pictures/head_grid.mjs";
import { headOf, headsOf, inColours, largest, legend, mapOf, mostOn } from "./pictures/heat.mjs";
import { movingLegend, rowOf, scoresIn, signedTop, unpack, weightsIn } from "./pictures/heat.mjs";
import { tokenPath } from "./pictures/path.mjs";
import { bars, lineEnd, words } from "./pictures/words.mjs";
import { writeButtons, written } from "./targets/next.mjs";
import { addInput } from "./views.mjs";

const MOST_BEST = 8; // classes that are shown
const ABLATED =
  "Press a head to ablate it. Ablating a head sets its output to zero, which is outside what the " +
  "model saw in training, so the drop can overstate its importance.";

/** A text to type: `{node, value(), begin(), add(codes)}`. */
function textInput(run, onInput) {
  const { node, area } = textField("your text", 3, onInput);
  return {
    node,
    begin: () => {
      area.value = run.text;
    },
    add: (codes) => {
      area.value += String.fromCodePoint(...codes);
    },
    value: () => ({ text: area.value }),
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
  const node = div(el("h3", {}, "Draw here"), drawing.node, choice);
  const numbers = () => image.data.map((ink) => Number((1 - ink).toFixed(2)));
  const value = () => ({ inputs: { shape: image.shape, data: numbers() } });
  return { node, begin, value, image: () => image };
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
    look(null);
  };
  const look = (token) => {
    view.token = token;
    changed();
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
  const chosen = el("p", { class: "hint", "aria-live": "polite" });
  const map = div();
  const summary = el("summary", {}, "Its whole map");
  const details = el("details", { class: "behind", open: true }, summary, map);
  details.addEventListener("toggle", drawMap);
  const path = tokenPath();
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
    hint: `Press a ${isImage ? "patch" : "token"} to mask it in every head.`,
    onPress: (key) => hide([key]),
  });

  /** Begins with a head that tells something, unless one was chosen. */
  function begins(i) {
    if (state.isChosen) return;
    const [attention, head] = placesOfHeads(run)[i];
    Object.assign(view, { attention, head });
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
    state.effects.set(`${attention},${head}`, value);
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
    Promise.all(reply.maps.map(unpack)).then((maps) => {
      if (state.reply !== reply) return;
      const heads = maps.flatMap((own, i) => headsOf({ ...own, signed: isSigned(i) }));
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

  const isSigned = (attention) => run.attention[attention].signed;
  const nameIn = (reply) => run.attention[reply.view.attention].name;
  const headIn = ({ view: own }) => headName(run, own.attention, own.head);

  /** The effects of ablating each head of the block, and then of masking each part. */
  async function measure(reply, settings, { inputs }, isNew) {
    const [[best]] = reply.classes;
    const own = { inputs, settings };
    const block = reply.view.attention;
    const heads = range(run.attention[block].heads);
    const keys = range(isImage ? weightsIn(reply, nameIn(reply), 0).columns : reply.tokens.length);
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
    if (state.reply.view.attention !== block || state.asked !== JSON.stringify([inputs, settings]))
      return;
    state.parts = state.asked;
    const ofKeys = {
      ...common,
      title: `Effect of masking each ${isImage ? "patch" : "token"} on`,
      names: keys.map((key) => (isImage ? `patch ${key}` : written(reply.tokens[key]))),
      changes: keys.map((key) => ({ hidden: [key] })),
      off: keys.map((key) => settings.hidden.includes(key)),
    };
    ofParts.show(ofKeys, own);
  }

  /** Ablates each head of the model in turn, which may take a minute. */
  async function cutEach() {
    const { asked, request, settings } = state;
    if (!request) return; // before the first reply
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
      const own = { inputs: request.inputs, settings };
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

  function showTokens(tokens, looks, settings) {
    const label = "the text; press a token to see what it attends to";
    const own = words(label, tokens, { onPick: look });
    const { token } = state.reply.view;
    const whole = run.takes === "prompt" ? token + 1 : tokens.length;
    const count = Math.max(whole - settings.hidden.length, 1);
    own.show(rowOf(looks, 0), count, signedTop(looks));
    own.hide(settings.hidden);
    own.pick(token);
    scale.to(count, settings.hidden.length > 0, signedTop(looks));
    replaceButtons(line, own.node);
  }

  function showImage(looks, settings) {
    const row = rowOf(looks, 0);
    const columns = Math.round(Math.sqrt(row.length));
    const patches = { size: run.side / columns, columns };
    const count = Math.max(row.length - settings.hidden.length, 1);
    const image = input.image();
    inColours(looked, () => paintPixels(looked, image, patches, row, count));
    const best = indexOfLargest(row);
    looked.setAttribute("aria-label", `what the model sees; most weight is on patch ${best}`);
    scale.to(count, settings.hidden.length > 0);
  }

  function showAnswer(reply) {
    if (!run.has_answer) return;
    const named = ([name, share]) => [isImage ? name : written(name), share];
    answer.replaceChildren(bars(reply.classes.slice(0, MOST_BEST).map(named)));
    if (reply.writes) offers.show(reply);
  }

  /** The whole map of the head, once it is wanted. */
  async function drawMap() {
    const { reply } = state;
    if (!details.open || !reply) return;
    const signed = isSigned(reply.view.attention);
    const weights = headOf({ ...(await unpack(reply.map)), signed }, 0);
    const tokens = reply.tokens.map(lineEnd);
    const isWhole = weights.rows === tokens.length;
    const names = isWhole ? tokens : range(41).map(() => ""); // coarse: no names
    const isBefore = run.takes === "prompt" ? (q, k) => k <= q : undefined;
    const drawn = mapOf(names, weights, () => {}, { visible: isBefore });
    drawn.point(null);
    map.replaceChildren(drawn.node, legend(signedTop(weights) ?? 1, Boolean(isBefore), signed));
  }

  function say([reply]) {
    const { classes, tokens } = reply;
    const [[name, share]] = classes;
    const what = run.takes === "prompt" ? "Next token" : "Prediction";
    const first = `${what}: “${isImage ? name : written(name)}” (${percent(share)}). `;
    const said = run.has_answer ? first : "";
    const weights = weightsIn(reply, nameIn(reply), 0);
    const best = largest(weights, 0);
    const from = isImage ? "the whole image" : `“${written(tokens[reply.view.token])}”`;
    const to = isImage ? `patch ${best}` : `“${written(tokens[best])}”`;
    const most = mostOn(to, weights.at(0, best), weights.signed, "attends most to");
    return `${said}In ${headIn(reply)}, ${from} ${most}.`;
  }

  function query() {
    const { reply, settings } = state;
    if (!reply || isImage) return null;
    const { token } = reply.view;
    const causal = settings.causal || run.takes === "prompt";
    return {
      what: `“${written(reply.tokens[token])}”`,
      weights: weightsIn(reply, nameIn(reply), 0),
      scores: scoresIn(reply, nameIn(reply), 0),
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
  const heading = run.takes === "prompt" ? "Next token" : "Prediction";
  const answers = run.has_answer ? [el("h3", {}, heading), offers.node, answer] : [];
  const effects = [ofHeads.node, el("div", { class: "row" }, all, progress), ofParts.node];
  const image = [el("h3", {}, "What it sees, and the attention of the head"), looked, scale.node];
  return {
    node: div(
      isImage
        ? el("div", { class: "try-drawing" }, input.node, div(image), div(answers))
        : [input.node, line, scale.node, answers],
      el("h3", {}, "The heads"),
      el("div", { class: "beside" }, grid.node, div(chosen, isImage ? null : details)),
      run.has_answer ? effects : null,
    ),
    after: path.node,
    hint: isImage
      ? "Draw, or choose a picture. Choose a head, ablate it, and see the prediction change."
      : "Type, and press a token to see what it attends to. Choose a head" +
        (run.has_answer ? ", ablate it, and see the prediction change." : "."),
    most: isImage ? 1 : 33,
    between: !isImage,
    ordered: run.takes === "prompt",
    hasScores: !isImage,
    input: () => input.value(),
    more: () => ({ view: { ...view }, settings: cut.length ? { cut } : {} }),
    begin, show, say, query,
  };
}

addInput("published", { view: tryPublished });
