"""Tables of a user's own, from training to the predictions beside their texts."""

import csv
import json
import shlex

import numpy as np
import pytest

import flax_attn
from flax_attn.__main__ import main
from tests import tiny

WORDS = {"good": ["fine", "lovely", "great"], "bad": ["poor", "awful", "dull"]}
ROWS = [  # with the separator, quotes and line ends in texts
    (f'a {word}; "really, {word}"\nfilm {i}', label)
    for label, words in WORDS.items()
    for word in words
    for i in range(20)
]
GREAT = 'a great; "really, great" film 3'
COLUMNS = {"data.text_column": "review", "data.label_column": "sentiment"}


def write(path, rows, header, delimiter=";"):
    with open(path, "w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])
    return str(path)


def rows_of(path, delimiter=";"):
    with open(path, encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file, delimiter=delimiter))


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    """A run on a table as a spreadsheet in Europe writes it, that has learned."""
    folder = tmp_path_factory.mktemp("films")
    rows = [(i, text, label, "") for i, (text, label) in enumerate(ROWS)]
    file = write(folder / "own.csv", rows, ["id", "review", "sentiment", "note, or none"])
    overrides = tiny.TEXTS | COLUMNS | {"data.file": file, "model.dropout_rate": 0.0}
    overrides |= {"num_epochs": 8, "learning_rate": 0.02, "steps_per_epoch": 0}
    with tiny.no_pictures():
        return flax_attn.train("text_csv", workdir=folder / "run", overrides=overrides)


@pytest.fixture(scope="module")
def stars(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stars")
    rows = [(text, i % 5 + 0.5) for i, (text, _) in enumerate(ROWS)]
    file = write(folder / "own.tsv", [(t.replace("\n", " "), n) for t, n in rows], ["t", "n"], "\t")
    overrides = tiny.TEXTS | {"data.file": file, "data.text_column": "t", "num_epochs": 1}
    overrides |= {"data.number_column": "n"}
    with tiny.untrained():
        return flax_attn.train("numbers_csv", workdir=folder / "run", overrides=overrides)


def predict(capsys, *arguments):
    code = main(["predict", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_the_classes_of_a_table_stand_beside_its_texts(films, tmp_path, capsys):
    assert films.summary["metrics"]["test/accuracy"]["mean"] == 1
    rows = [("x;1", text, "") for text, _ in ROWS[::7]] + [("y", 'so "dull"', "by me")]
    source = write(tmp_path / "new.csv", rows, ["key", "review", "who"])
    before = (tmp_path / "new.csv").read_bytes()
    code, out, err = predict(capsys, films.path, "--input", source)
    assert (code, err) == (0, "")
    assert "19 texts: " in out
    assert f"wrote {tmp_path / 'new.predictions.csv'}" in out
    header, *written = rows_of(tmp_path / "new.predictions.csv")
    assert header == ["key", "review", "who", "predicted_class", "probability"]
    assert [tuple(row[:3]) for row in written] == rows
    expected = films.predict([row[1] for row in rows])
    assert [row[3] for row in written] == expected.classes
    assert expected.classes[:9] == ["good"] * 9
    assert expected.classes[-1] == "bad"
    shares = [float(row[4]) for row in written]
    np.testing.assert_allclose(shares, expected.outputs.max(axis=1), rtol=1e-3)
    assert (tmp_path / "new.csv").read_bytes() == before
    assert (tmp_path / "new.predictions.csv").read_bytes()[:3] == b"\xef\xbb\xbf"


def test_a_table_goes_where_the_user_says_and_json_is_printed_alone(films, tmp_path, capsys):
    (tmp_path / "new.tsv").write_text(f"review\tid\n{GREAT}\t1\n")
    source = tmp_path / "new.tsv"
    output = tmp_path / "out.tsv"
    code, _, _ = predict(capsys, films.path, "--input", source, "--output", output)
    assert code == 0
    assert output.read_text().splitlines()[1].startswith(f"{GREAT}\t1\tgood\t")
    other = tmp_path / "out.csv"
    assert predict(capsys, films.path, "--input", source, "--output", other)[0] == 0
    assert rows_of(other, ",")[1][:3] == [GREAT, "1", "good"]
    other.unlink()
    code, out, _ = predict(capsys, films.path, "--input", source, "--json")
    assert json.loads(out)[0]["input"] == GREAT
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.tsv", "out.tsv"]


def test_rows_without_a_known_word_get_no_class_and_a_warning(films, tmp_path, capsys):
    rows = [(GREAT,), ("",), ("zzz",), ("so dull",)]
    source = write(tmp_path / "new.csv", [(*row, 1) for row in rows], ["review", "id"])
    code, out, err = predict(capsys, films.path, "--input", source)
    assert code == 0
    assert "2 texts: " in out
    assert err.startswith("warning: 2 of 4 rows get no prediction, the first in line 3: expected")
    classes = [row[2] for row in rows_of(tmp_path / "new.predictions.csv")[1:]]
    assert classes == ["good", "", "", "bad"]
    (tmp_path / "new.predictions.csv").unlink()
    source = write(tmp_path / "new.CSV", rows, ["review"])
    assert predict(capsys, films.path, "--input", source)[0] == 0
    assert (tmp_path / "new.predictions.csv").exists()
    write(tmp_path / "new.CSV", [("zzz", 1), ("yyy", 2)], ["review", "id"])
    code, _, err = predict(capsys, films.path, "--input", source)
    assert code == 2
    assert "2 of 2 rows get no prediction, the first in line 2: " in err
    write(tmp_path / "new.CSV", [("zzz", 1)], ["review", "id"])
    code, _, err = predict(capsys, films.path, "--input", source)
    assert code == 2
    assert err.startswith("error: 1 of 1 rows get no prediction, the first in line 2: ")


def test_many_unknown_words_in_a_table_are_a_warning(films, stars, tmp_path, capsys):
    rows = [("7", "so dull"), ("8", "zzz yyy xxx")]  # two of five words are known in none
    source = write(tmp_path / "new.csv", rows, ["id", "review"])
    code, _, err = predict(capsys, films.path, "--input", source)
    assert code == 0
    *_, warned = err.splitlines()
    assert warned.startswith("warning: 80% of the 5 words of the texts are unknown to the run")
    source = write(tmp_path / "new.csv", [("7", f"{GREAT} really zzz")], ["id", "t"])
    assert predict(capsys, stars.path, "--input", source)[2] == ""


def test_many_unknown_words_in_a_text_are_a_warning(films, stars, capsys):
    for run in (films, stars):
        _, _, err = predict(capsys, run.path, "a film", "a zzz yyy xxx")
        assert err.startswith("warning: 50% of the 6 words of the texts are unknown to the run")
        assert predict(capsys, run.path, GREAT)[2] == ""


def test_a_line_without_a_known_word_is_left_out_with_a_warning(films, stars, tmp_path, capsys):
    source = tmp_path / "new.txt"
    for run in (films, stars):
        source.write_text("\na great film\n\nzzz\nyyy !\nso dull film\n")
        code, out, err = predict(capsys, run.path, "--input", source, "--json")
        assert code == 0
        assert [row["input"] for row in json.loads(out)] == ["a great film", "so dull film"]
        assert err.startswith("warning: 2 of 4 rows get no prediction, the first in line 4: ")
        source.write_text("\nzzz\nyyy\n")
        code, _, err = predict(capsys, run.path, "--input", source)
        assert code == 2
        assert "2 of 2 rows get no prediction, the first in line 2: " in err


def test_a_run_that_reads_parts_of_words_says_that_it_knows_no_word(tmp_path, capsys):
    file = write(tmp_path / "own.csv", ROWS, ["review", "sentiment"])
    overrides = COLUMNS | {"data.file": file, "num_epochs": 1, "batch_size": 16}
    with tiny.untrained():
        run = flax_attn.train("text_csv_best", workdir=tmp_path / "run", overrides=overrides)
    source = write(tmp_path / "new.csv", [("7", "zzz yyy")] * 2, ["id", "review"])
    code, _, err = predict(capsys, run.path, "--input", source)
    assert code == 0
    assert err.startswith("warning: all of the 4 words of the texts are unknown to the run")


@pytest.mark.parametrize(
    ("name", "content", "arguments", "said"),
    [
        ("new.csv", "text;id\na;1\n", [], "'review'"),
        ("new.csv", "", [], "new.csv"),
        ("gone.csv", None, [], "gone.csv"),
        ("new.csv", "review\na\n", ["b"], "--input"),
        ("new.csv", "review\na\n", ["--output", "new.csv"], "--input"),
        ("new.csv", "review\na\n", ["--output", "out.npy"], "--output"),
        ("new.csv", "review;probability\na;1\n", [], "'probability'"),
    ],
)
def test_a_table_that_cannot_be_predicted_is_one_line(
    films, name, content, arguments, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / name).write_text(content)
    code, out, err = predict(capsys, films.path, "--input", name, *arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert said in err
    assert [path.name for path in tmp_path.iterdir()] == [name] * (content is not None)


def test_the_numbers_of_a_table_stand_beside_its_texts(stars, tmp_path, capsys):
    rows = [("7", GREAT), ("8", "so dull")]
    source = write(tmp_path / "new.csv", rows, ["id", "t"], ",")
    code, _, _ = predict(capsys, stars.path, "--input", source)
    assert code == 0
    header, *written = rows_of(tmp_path / "new.predictions.csv", ",")
    assert header == ["id", "t", "predicted_number"]
    said = stars.predict([text for _, text in rows]).outputs
    np.testing.assert_allclose([float(row[2]) for row in written], said, rtol=1e-5)
    code, _, err = predict(capsys, stars.path, "--input", source, "--output", "own.npy")
    assert code == 2
    assert "--output" in err


def test_the_words_that_mattered_are_those_without_which_a_text_says_less(films, tmp_path, capsys):
    code, out, _ = predict(capsys, films.path, "--why", GREAT, "a dull film 1", "--json")
    assert code == 0
    for row in json.loads(out):
        best, share = next(iter(row["classes"].items()))
        words = [token["token"] for token in row["tokens"]]
        for i, token in enumerate(row["tokens"]):
            (fewer,) = films.predict([" ".join([*words[:i], *words[i + 1 :]])]).outputs
            change = fewer[films.task.target.class_names().index(best)] - share
            np.testing.assert_allclose(token["change"], change, atol=1e-5)
            assert 0 <= token["weight"] <= 1
    code, out, _ = predict(capsys, films.path, "so dull", "--why")
    title, first, second = out.splitlines()[-3:]
    assert 'without the word, the probability of "bad" changes by' in title
    assert {first.split()[1], second.split()[1]} == {"so", "dull"}
    assert abs(float(first.split()[0])) >= abs(float(second.split()[0]))
    _, out, _ = predict(capsys, films.path, "so dull", "--why", "--figure", tmp_path / "why.png")
    assert "the picture shows the weights; a word with little weight may still decide" in out


def test_a_table_is_written_also_where_it_is_told_why(films, tmp_path, capsys):
    source = write(tmp_path / "new.csv", [(GREAT,), ("so dull",)], ["review"])
    code, out, _ = predict(capsys, films.path, "--input", source, "--why")
    assert code == 0
    assert out.count("without the word") == 2
    assert (tmp_path / "new.predictions.csv").exists()


def words(capsys, *arguments):
    code = main(["words", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_the_words_of_each_class_over_the_test_split_and_over_a_file(films, tmp_path, capsys):
    code, out, err = words(capsys, films.path, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["texts"] == 18
    kinds = {name: {own["word"] for own in rows[:3]} for name, rows in told["classes"].items()}
    assert kinds["good"] & set(WORDS["good"])
    assert kinds["bad"] & set(WORDS["bad"])
    assert all(own["change"] < 0 for rows in told["classes"].values() for own in rows)
    source = write(tmp_path / "new.csv", [(text, "") for text, _ in ROWS], ["review", "x"])
    code, out, _ = words(capsys, films.path, "--input", source, "--words", 2, "--texts", 30)
    assert code == 0
    assert "in 30 texts" in out
    lines = out.splitlines()
    assert [lines[1], lines[4]] == ["bad", "good"]
    assert len(lines) == 7
    _, out, _ = words(capsys, films.path, "--input", source, "--texts", 12, "--json")
    few = json.loads(out)  # from everywhere in the file, which stands in the order of its classes
    for name, rows in few["classes"].items():
        assert {own["word"] for own in rows} & set(WORDS[name])


def test_a_table_with_labels_has_its_accuracy(films, stars, tmp_path, capsys):
    rows = [(text, "good" if i else "bad") for i, (text, _) in enumerate(ROWS[:8])]
    source = write(tmp_path / "new.csv", rows, ["review", "sentiment"])
    code, out, _ = predict(capsys, films.path, "--input", source)
    assert code == 0
    classes = films.predict([text for text, _ in rows]).classes
    right = np.mean([own == label for own, (_, label) in zip(classes, rows)])
    assert f"test accuracy {right:.4g} (95 % interval " in out
    assert main(["evaluate", str(films.path), str(source)]) == 0
    assert f"test accuracy {right:.4g} (95 % interval " in capsys.readouterr().out
    numbers = write(tmp_path / "n.tsv", [("so fine", 1.5), ("so dull", 2.5)], ["t", "n"], "\t")
    code, out, _ = predict(capsys, stars.path, "--input", numbers)
    expected = np.abs(stars.predict(["so fine", "so dull"]).outputs - [1.5, 2.5]).mean()
    assert f"test mae {expected:.4g} (" in out


def test_words_are_refused_for_other_runs_and_other_data(films, stars, tmp_path, capsys):
    for arguments in (["words", stars.path], ["predict", stars.path, "--why", "so dull"]):
        assert main([*map(str, arguments)]) == 2
        assert "text_csv" in capsys.readouterr().err
    code, _, err = words(capsys, films.path, "--texts", 0)
    assert code == 2
    assert "--texts" in err
    own = films.path.parent / "own.csv"
    before = own.read_bytes()
    own.write_bytes(before.replace(b"fine", b"nice"))
    code, _, err = words(capsys, films.path)
    own.unlink()
    missing = words(capsys, films.path)
    own.write_bytes(before)
    assert code == 2
    assert "own.csv" in err
    assert missing[0] == 2
    assert "own.csv" in missing[2]


def test_simple_classifiers_stand_beside_the_test_accuracy(films, tmp_path, capsys):
    (accuracy,) = films.summary["comparisons"]
    simple = {one["name"]: one["mean"] for one in accuracy["beside"]}
    assert simple == {"the largest class alone": 0.5, "logistic regression on TF-IDF": 1}
    file = write(tmp_path / "own.csv", ROWS, ["the user's", "sentiment"])
    columns = {"data.text_column": "the user's", "data.label_column": "sentiment"}
    flags = [f"--{key}={value}" for key, value in (tiny.TEXTS | columns).items()]
    flags += ["--num_epochs=1", f"--data.file={file}", f"--workdir={tmp_path / 'run'}"]
    with tiny.untrained():
        assert main(["train", "text_csv", *flags]) == 0
    out = capsys.readouterr().out
    assert "\n  logistic regression on TF-IDF: 1 (difference -0.39, 95 % interval " in out
    assert "\n  so the run is worse than logistic regression on TF-IDF; not dis" in out
    assert "\nrecall: good: 0.22, bad: 1.00\n" in out
    assert "\nexamples: 84 train, 18 valid, 18 test\ntexts: " in out
    assert out.index("\nclasses to train on: ") < out.index("\ncompiling")
    (line,) = [line for line in out.splitlines() if line.startswith("to try next: ")]
    parts = shlex.split(line.partition(" (")[0])
    assert parts[3:6] == ["flax-attn", "train", "text_csv_best"]
    assert parts[6:] == [f"--data.file={file}", *(f"--{key}={columns[key]}" for key in columns)]


def film_rows(manual_dir):
    from flax_attn.data import builders, sst

    rows, _ = builders.load(sst.SST, ("train",), manual_dir)
    trees = [sst.phrases(row["tree"]) for row in rows["train"]]
    phrases = [tree[0] for tree in trees if tree[0].label != 2]
    sides = {0: "negative", 1: "negative", 3: "positive", 4: "positive"}
    return [(" ".join(own.words).replace(" , ", ' ,\n"', 1), sides[own.label]) for own in phrases]


@pytest.mark.slow
def test_real_rows_as_a_spreadsheet_has_them(manual_dir, tmp_path, capsys):
    """One command trains, one predicts a file, and one says which words mattered."""
    chosen = np.random.default_rng(0).permutation(film_rows(manual_dir))[:2_300]
    rows = [(i, *row) for i, row in enumerate(chosen.tolist())]
    header = ["no.", "Bewertung; wörtlich", "Urteil"]
    file = write(tmp_path / "own.csv", rows[:2_000], header)
    run, columns = tmp_path / "run", ["--data.text_column=Bewertung; wörtlich"]
    columns += ["--data.label_column=Urteil", f"--data.file={file}", f"--workdir={run}"]
    assert main(["train", "text_csv:quick", "--num_epochs=6", *columns]) == 0
    out = capsys.readouterr().out
    summary = json.loads((run / "summary.json").read_text())
    own, (accuracy,) = summary["metrics"]["test/accuracy"]["mean"], summary["comparisons"]
    simple = {one["name"]: one["mean"] for one in accuracy["beside"]}
    assert own > simple["the largest class alone"] + 0.05
    assert 0.6 < simple["logistic regression on TF-IDF"] < 0.95
    assert f"test accuracy {own:.4g} (95 % interval " in out
    source = write(tmp_path / "new.csv", rows[2_000:], header)
    assert predict(capsys, run, "--input", source)[0] == 0
    written = rows_of(tmp_path / "new.predictions.csv")[1:]
    assert [(int(row[0]), row[1], row[2]) for row in written] == rows[2_000:]
    assert np.mean([row[3] == row[2] for row in written]) > own - 0.1
    _, out, _ = predict(capsys, run, "--why", "an awful and boring mess", "--json")
    tokens = json.loads(out)[0]["tokens"]
    strongest = sorted(tokens, key=lambda token: token["change"])[:3]
    assert {token["token"] for token in strongest} & {"awful", "boring", "mess"}
    assert words(capsys, run)[0] == 0


@pytest.mark.parametrize("command", ["predict", "words"])
def test_a_table_under_the_name_of_a_text_is_refused(command, films, tmp_path, capsys):
    path = write(tmp_path / "reviews.txt", [("a great film", "good")], ["review", "sentiment"])
    assert main([command, str(films.path), "--input", path]) == 2
    assert "'review'" in capsys.readouterr().err
