// Who answers for a run in a report: a model in the page, or nobody.

/** `ask(request) -> Promise<reply>` of a run, or null. */
export function askOf(run) {
  return null;
}
