"""Reports that are handed out: texts are answered offline in Chromium as `predict` answers."""

import json

import numpy as np
import pytest

import flax_attn
from flax_attn.data import dates
from flax_attn.explore.showing import page_of
from flax_attn.runs.reading import read
from tests import tiny

# what a page does with its model, for many texts
ASK = r"""async (texts) => {
  const { live } = JSON.parse(document.getElementById("data").textContent).runs[0];
  const source = `serveModel(self);\n${document.getElementById("script").textContent}`;
  const blob = new Blob([source], { type: "text/javascript" });
  const worker = new Worker(URL.createObjectURL(blob));
  worker.postMessage({ live });
  const replies = [];
  for (const text of texts) {
    const answer = new Promise((done) => { worker.onmessage = ({ data }) => done(data); });
    worker.postMessage({ request: { inputs: { text }, settings: {}, brief: true } });
    const { outputs, text: written, error } = await answer;
    replies.push({ outputs: outputs?.data ?? null, text: written, error });
  }
  return replies;
}"""


def film(random):
    words = [
        "a",
        "the",
        "fine",
        "Fine",
        "dull",
        "film",
        "plot",
        "isn't",
        "IT",
        "not",
        "3.5",
        "!",
        "unseen",
    ]
    return " ".join(["film", *random.choice(words, size=random.integers(1, 30))])


def films():
    random = np.random.default_rng(0)
    texts = [film(random) for _ in range(200)]
    labels = ["good" if "fine" in text.lower() else "bad" for text in texts]
    rows = texts[:60], ["good", "bad", *labels[2:60]]
    overrides = tiny.TEXTS | {"data.num_buckets": 1}
    return ("text_csv", overrides, {"train": rows, "test": rows}), texts


def written_dates():
    overrides = tiny.PAIRS | {"data.num_train": 64, "data.num_test": 8, "decoding.beam": 3}
    return ("dates_bahdanau", overrides, None), [pair.source for pair in dates.generate(3, 200)]


def sounds():
    random = np.random.default_rng(0)
    words = ["".join(random.choice([*"aAbBcCdé"], size=random.integers(1, 9))) for _ in range(200)]
    rows = words[:60], [" ".join(word) for word in words[:60]]
    return ("letters_tsv", tiny.PAIRS, {"train": rows, "test": rows}), words


@pytest.mark.slow
@pytest.mark.parametrize("make", [films, written_dates, sounds])
def test_200_texts_are_answered_offline_as_predict_answers(make, tmp_path, browser):
    (config, overrides, data), texts = make()
    with tiny.no_pictures():
        run = flax_attn.train(
            config, workdir=tmp_path / "run", overrides=overrides | {"num_epochs": 1}, data=data
        )
    page = tmp_path / "page.html"
    page.write_text(page_of([read(run.path)]))
    assert page.stat().st_size < 1_500_000
    opened = browser.new_context(offline=True, viewport={"width": 360, "height": 800}).new_page()
    opened.goto(f"file://{page}")
    replies = opened.evaluate(ASK, texts)
    assert opened.evaluate("document.documentElement.scrollWidth") == 360
    opened.context.close()
    assert not [reply["error"] for reply in replies if reply["error"]]
    expected = run.predict(texts).outputs
    if config == "text_csv":
        np.testing.assert_allclose([reply["outputs"] for reply in replies], expected, atol=1e-5)
    else:
        assert [reply["text"] for reply in replies] == json.loads(json.dumps(expected))
