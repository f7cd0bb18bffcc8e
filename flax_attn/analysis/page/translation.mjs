// Translations: the source above, the translation below, lines as thick as the weight.

import { el, percent, scrollBox, sentence, tableBehind } from "./dom.mjs";
import { heatMap, largest } from "./heat.mjs";
import { linesBetween } from "./lines.mjs";

/** The picture of one translation, for `stage`. */
export function drawTranslation() {
  return (example, weights, { top }) => {
    const { source, tokens, reference } = example;
    const right = el("p", { class: "result" }, translated(tokens, reference));
    if (!weights || !tokens.length) return [right];
    const said = sentence();
    const name = "Attention: each part of the translation is a row, the source is across";
    const map = heatMap({
      name,
      rowNames: tokens,
      columnNames: source,
      axes: ["translation", "source"],
      onPoint: (q, k) => tell(q, k),
    });
    map.show(weights, { top, name });
    const label = "The source above, the translation below";
    const lines = linesBetween(label, source, tokens, (q, k) => tell(q, k));
    const tell = (q, k = null) => {
      const key = k ?? largest(weights, q);
      const share = percent(weights.at(q, key));
      said.say(
        k === null
          ? `“${tokens[q]}” was read most from “${source[key]}”: ${share} of its weight.`
          : `“${tokens[q]}” puts ${share} of its weight on “${source[key]}”.`,
      );
      lines.show(weights, q);
      map.point(q, key);
    };
    tell(0);
    const hint = "Point at a part of the translation to see what it was read from.";
    return [
      right,
      lines.node,
      said.node,
      el("p", { class: "hint no-print" }, hint),
      scrollBox("The map", map.node),
      translationBehind(source, tokens, weights),
    ];
  };
}

function translated(tokens, reference) {
  const isSame = ["", " "].some((between) => tokens.join(between) === reference);
  if (isSame) return `✓ The model wrote “${reference}”, which is right.`;
  if (!tokens.length) return `✗ The model wrote nothing; right is “${reference}”.`;
  const areLetters = tokens.every((token) => [...token].length < 2);
  const wrote = tokens.join(areLetters ? "" : " ");
  return `The model wrote “${wrote}”; the reference is “${reference}”.`;
}

function translationBehind(source, tokens, weights) {
  const header = ["translation", "read most from", "weight"];
  const rows = () =>
    tokens.map((token, q) => {
      const key = largest(weights, q);
      return [token, source[key], percent(weights.at(q, key))];
    });
  return tableBehind("what each part was read from", header, rows);
}
