// How a page opens: its data are read, packed arrays become numbers, and then it is filled.

import { el } from "./dom.mjs";
import { unpack } from "./pictures/heat.mjs";

/** Turns every packed array of the data into numbers, in place. */
async function unpackAll(value) {
  if (value === null || typeof value !== "object") return;
  const work = Object.entries(value).map(async ([key, entry]) => {
    const isPacked = entry?.shape && typeof entry.data === "string";
    if (isPacked) value[key] = await unpack(entry);
    else await unpackAll(entry);
  });
  await Promise.all(work);
}

/** Calls `fill(page, data)` with the data of the page, and then says that the page is ready. */
export async function openPage(fill) {
  const page = document.getElementById("page");
  const data = JSON.parse(document.getElementById("data").textContent);
  if (!("DecompressionStream" in window)) {
    const said = "This browser is from before 2023 and cannot open the page's data.";
    page.replaceChildren(el("h1", {}, document.title), el("p", {}, said, " Use a newer one."));
    return;
  }
  await unpackAll(data);
  fill(page, data);
  page.dataset.ready = "yes";
}
