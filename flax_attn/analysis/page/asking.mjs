// Who answers for a run in a report: a model in the page, or nobody.

import { answering } from "./worker.mjs";

/**
 * `ask(request) -> Promise<reply>` of a run, or null. The worker that answers is made from the
 * page's own script.
 */
export function askOf(run) {
  return run.live && answering(run.live, document.getElementById("script").textContent);
}
