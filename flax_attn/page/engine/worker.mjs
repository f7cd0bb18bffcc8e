// A model that answers beside the page, in a worker, so that a page moves while it computes.

import { open, refused } from "./interpreter.mjs";

const MOST_WAITING = 64; // requests

/**
 * `ask(request) -> Promise<reply>` of a live model.
 *
 * The newest request is answered first: it waits for the one that is being answered, and for no
 * other. Parts of a page may ask side by side, so the others are answered too, when there is time.
 * Of more than 64 that wait, the oldest is refused. Where there is no worker, the model answers in
 * the page.
 * @param live the JSON of a model
 * @param source the text of this module and all that it imports, joined, without imports
 */
export function answering(live, source) {
  const engine = { answer: null, isBusy: false, waiting: [] };
  const next = () => {
    const asked = engine.waiting.pop();
    engine.isBusy = asked !== undefined;
    if (!engine.isBusy) return;
    engine.answer(asked.request, (reply) => {
      asked.resolve(reply);
      next();
    });
  };
  engine.answer = inWorker(live, source, (asked) => {
    engine.answer = inPage(live);
    if (asked) engine.answer(...asked);
  });
  return (request) =>
    new Promise((resolve) => {
      engine.waiting.push({ request, resolve });
      if (engine.waiting.length > MOST_WAITING) {
        engine.waiting.shift().resolve(refused("too many newer requests came; ask again"));
      }
      if (!engine.isBusy) next();
    });
}

/** Answers requests that are sent to this worker: what a worker does. */
export function serveModel(scope) {
  let model = null;
  scope.onmessage = ({ data }) => {
    if (data.live) model = open(data.live);
    else scope.postMessage(model.ask(data.request));
  };
}

/**
 * `answer(request, callback)` by a worker, or in the page where there can be none. A worker that
 * fails hands what it was asked to `fallBack`.
 */
function inWorker(live, source, fallBack) {
  const worker = makeWorker(source);
  if (worker === null) return inPage(live);
  let asked = null; // the request that the worker has, with its callback
  worker.onmessage = ({ data }) => {
    const [, callback] = asked;
    asked = null;
    callback(data);
  };
  worker.onerror = (event) => {
    event.preventDefault();
    worker.terminate();
    fallBack(asked);
  };
  worker.postMessage({ live });
  return (request, callback) => {
    asked = [request, callback];
    worker.postMessage({ request });
  };
}

/** A worker whose text is a blob; null where the browser or its rules allow none. */
function makeWorker(source) {
  try {
    const blob = new Blob([`serveModel(self);\n${source}`], { type: "text/javascript" });
    const address = URL.createObjectURL(blob);
    return new Worker(address);
  } catch {
    return null;
  }
}

/** The same without a worker; a pause lets the page draw, and a newer request come. */
function inPage(live) {
  let model = null;
  return (request, callback) => {
    setTimeout(() => {
      try {
        model ??= open(live);
      } catch (error) {
        callback(refused(`the model cannot be opened (${error.message})`));
        return;
      }
      callback(model.ask(request));
    }, 0);
  };
}
