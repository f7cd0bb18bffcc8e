// Who answers for a run: a model in the page, a server, or nobody.

/** `ask(request) -> Promise<reply>` of a run, or null. */
export function askOf(run, mode) {
  return null;
}
