// What a reader can try on a model that answers: an input to change, and the attention to change.

import { isGone, newestWins, whenBack, whenLate } from "./asking.mjs";
import { isUnchanged, lensControls, UNCHANGED } from "./controls/settings.mjs";
import { shareRow, sharedState } from "./controls/sharing.mjs";
import { div, el, sentence } from "./dom.mjs";
import { LEARNED } from "./following.mjs";
import { fromScores, normalizerIn } from "./pictures/formula.mjs";
import { guide } from "./pictures/guide.mjs";
import { viewOf } from "./view.mjs";
import { inputOf, keptReply } from "./views.mjs";

/**
 * An element with which a run is asked. `others` are further runs that answer the same input, as
 * `[run, ask]`. A view, of `viewOf` or of an input of its own, has `{node, hint, begin(i), input(),
 * show(replies, settings, request), say(replies), query()}`; `begin` takes an example, of which
 * 0 is shown at first; `request` is null for what a run has kept. `more()` adds to what is asked;
 * `hasScores` is false where replies have none.
 */
export function tryIt(run, ask, others = []) {
  const runs = [run, ...others.map(([other]) => other)];
  const asks = [ask, ...others.map(([, own]) => own)];
  const hasAttention = runs.some((own) => own.attention.length > 0);
  let settings = { ...UNCHANGED };
  let isBack = false;
  let isNamed = false; // the normaliser that the model was trained with

  const figure = el("figure", { class: "try-figure", "aria-busy": "true" });
  const said = sentence("The model is asked …");
  const problem = el("p", { class: "try-problem", role: "status" });
  const formula = fromScores();
  const steps = guide();
  const late = whenLate((isLate) => section.classList.toggle("late", isLate));
  const send = newestWins(asks, shown, waiting);
  const changed = () => {
    const { settings: own, ...rest } = view.more?.() ?? {};
    send({ inputs: view.input(), settings: { ...settings, ...own }, ...rest });
  };
  const hide = (keys) => {
    const areHidden = keys.every((key) => settings.hidden.includes(key));
    const kept = settings.hidden.filter((key) => !keys.includes(key));
    settings.hidden = areHidden ? kept : [...kept, ...keys].sort((a, b) => a - b);
    changed();
  };
  const forget = () => {
    settings.hidden = []; // another text has other words
  };
  let example = 0;
  const begin = (i) => {
    example = i;
    view.begin(i);
  };
  const beginWith = (i) => {
    begin(i);
    forget();
    changed();
  };
  let last = null; // what is shown: the replies, their settings and the request, null if kept
  let isBroken = false; // the newest answer, so that what is shown is old

  function pick() {
    for (const own of [formula, steps]) own.show(view.query(), last?.[1] ?? settings);
    if (last && !isBroken) said.say(view.say(...last));
  }

  function again() {
    if (!last) return;
    view.show(...last);
    pick();
  }

  const make = inputOf(run).view ?? viewOf;
  const view = make({ runs, asks, changed, hide, forget, beginWith, pick, again });
  begin(0);

  function waiting(isWaiting) {
    figure.setAttribute("aria-busy", String(isWaiting));
    late.wait(isWaiting);
    said.node.classList.toggle("awaited", isWaiting);
  }

  function shown(request, replies) {
    const broken = replies.find((reply) => reply.error);
    late.answered();
    isBroken = Boolean(broken);
    figure.classList.toggle("stale", isBroken);
    problem.textContent = broken?.error ?? replies.find((reply) => reply.note)?.note ?? "";
    if (broken) {
      said.say("");
      formula.show(null, request.settings); // what is there is of the input before
      if (isGone(broken) && !isBack) comeBack();
      return;
    }
    runs.forEach(({ attention }, i) => {
      for (const { name, signed } of attention)
        if (replies[i].attention[name]) replies[i].attention[name].signed = signed;
    });
    if (!isNamed && isUnchanged(request.settings)) {
      const name = normalizerIn(replies); // as trained, so the weights tell by which
      controls.trained(name);
      isNamed = name !== null;
    }
    last = [replies, request.settings, request];
    view.show(...last);
    pick();
  }

  function comeBack() {
    isBack = true;
    whenBack(() => {
      isBack = false;
      changed();
    });
  }

  const controls = lensControls({
    normalizers: run.live?.normalizers,
    most: view.most,
    between: view.between,
    ordered: view.ordered,
    attention: run.attention,
    onChange: (own) => {
      settings = { ...own, hidden: settings.hidden };
      changed();
    },
    onReset: () => {
      settings = { ...UNCHANGED, hidden: [] };
      controls.set(UNCHANGED);
      begin(example);
      changed();
    },
  });
  const computing = el("span", {}, "computing …");
  figure.append(el("p", { class: "try-late", "aria-hidden": "true" }, computing), view.node);
  said.node.classList.add("try-said");
  const hint = el("p", { class: "try-hint" }, el("strong", {}, "Try this. "), view.hint);
  const below = [said.node, problem, hint, hasAttention ? controls.node : null].filter(Boolean);
  view.slot?.append(...below); // beside the picture: what changes and what is changed
  const behind = div(steps.node, formula.node);
  const own = { figure, said: said.node, problem, controls: controls.node, formula: behind };
  const parts = view.around?.(own) ?? [
    figure, view.slot ? null : below, view.after ?? null,
    hasAttention && view.hasScores !== false ? behind : null,
  ];
  const section = el("section",
    { class: `try try-${run.input} try-to-${run.target}`, "aria-label": `Try ${run.name}` }, parts,
  );
  section.append(shareRow(() => ({ run: run.name, inputs: view.input(), settings })));
  const shared = sharedState(run.name);
  if (shared) {
    settings = { ...UNCHANGED, ...shared.settings };
    controls.set(settings);
    view.restore?.(shared.inputs);
  }
  document.addEventListener(LEARNED, changed);
  const kept = keptReplies(runs, example);
  if (kept && !shared) {
    last = [kept, { ...settings }, null];
    view.show(...last);
    pick();
  }
  changed();
  return section;
}

/** What runs have kept of their answers to one example; null where it is not that of all. */
function keptReplies(runs, number) {
  const examples = runs.map((run) => run.examples[number]);
  const [first, ...others] = examples.map((own) => JSON.stringify(own?.inputs ?? own?.tokens));
  if (others.some((own) => own !== first)) return null;
  if (!examples.every(Boolean)) return null;
  return runs.map((run, i) => keptReply(run, examples[i]));
}
