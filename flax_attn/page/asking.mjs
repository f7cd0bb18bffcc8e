// Questions to a model, in the page or behind the local server: the newest wins, and none waits
// behind another.

import { answering } from "./engine/worker.mjs";
import { bytesFrom64 } from "./lists.mjs";

const GONE = "The explorer is gone. Start it again with the same command, and this page goes on.";
const OTHER = "Another run answers at this address now. Load the page again.";
const PATIENCE = 1500; // milliseconds until a server that is gone is tried again
const LATE = 250; // milliseconds after which an answer is late

/**
 * Sends one request at a time. While an answer is awaited only the newest further request is kept.
 * `show(request, replies)` gets what was asked and answered; an answer under other settings than
 * the newest request's is dropped. `wait(isWaiting)` hears when the newest answer is awaited.
 */
export function newestWins(asks, show, wait) {
  let next = null;
  let isRunning = false;
  const sameSettings = (one, other) =>
    JSON.stringify(one.settings) === JSON.stringify(other.settings);
  const run = async () => {
    isRunning = true;
    while (next !== null) {
      const request = next;
      next = null;
      const replies = await Promise.all(asks.map((ask) => ask(request).catch(failed)));
      const isNewest = next === null;
      if (isNewest) wait(false);
      if (isNewest || (sameSettings(request, next) && !replies.some((reply) => reply.error)))
        show(request, replies);
    }
    isRunning = false;
  };
  return (request) => {
    next = request;
    wait(true);
    if (!isRunning) run();
  };
}

/**
 * Calls `tell(true)` when no answer has come for a while, and `tell(false)` when one comes.
 * `wait(isWaiting)` hears when the newest answer is awaited, `answered()` every one that is shown.
 */
export function whenLate(tell) {
  let isAwaited = false;
  let timer = null;
  const answered = () => {
    clearTimeout(timer);
    tell(false);
    if (isAwaited) timer = setTimeout(() => tell(true), LATE);
  };
  const wait = (isWaiting) => {
    if (isWaiting === isAwaited) return;
    isAwaited = isWaiting;
    answered();
  };
  return { wait, answered };
}

/** The reply that stands for an answer that failed. */
function failed(error) {
  return { outputs: null, classes: null, attention: {}, error: String(error.message ?? error) };
}

/**
 * `ask(request) -> Promise<reply>` of a run whose model is in the page, or null. The worker that
 * answers is made from the page's own script.
 */
export const askOf = (run) =>
  run.live && answering(run.live, document.getElementById("script").textContent);

/** The `ask` of a run behind the local server: by its number. */
export function serverAsk(number) {
  return async (request) => {
    const body = JSON.stringify({ ...request, run: number });
    let response = await post(body);
    if (response.status === 403) {
      await newToken(); // the server was started again
      response = await post(body);
    }
    return unpacked(await response.json());
  };
}

let serverToken = null;

async function post(body) {
  serverToken ??= document.querySelector("meta[name=flax-attn-token]")?.content ?? "";
  const headers = { "Content-Type": "application/json", "X-Flax-Attn-Token": serverToken };
  try {
    return await fetch("/ask", { method: "POST", headers, body });
  } catch {
    throw new Error(GONE);
  }
}

/** Reads the token of a server that was started again from its page, if it has the same runs. */
async function newToken() {
  const page = await (await fetch("/")).text();
  if (!page.includes(document.getElementById("data").textContent)) throw new Error(OTHER);
  serverToken = /name="flax-attn-token" content="([\w-]+)"/.exec(page)?.[1] ?? "";
}

/** Calls back when a server that was gone answers again. */
export function whenBack(onBack) {
  const timer = setInterval(async () => {
    try {
      await fetch("/", { method: "HEAD" });
    } catch {
      return;
    }
    clearInterval(timer);
    onBack();
  }, PATIENCE);
}

export const isGone = (reply) => reply.error === GONE;

/** A reply whose arrays are numbers; the server sends them as float32 in base64. */
function unpacked(value) {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map(unpacked);
  if (typeof value.base64 === "string") {
    return { shape: value.shape, data: new Float32Array(bytesFrom64(value.base64).buffer) };
  }
  return Object.fromEntries(Object.entries(value).map(([key, own]) => [key, unpacked(own)]));
}
