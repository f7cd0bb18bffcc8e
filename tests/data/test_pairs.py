"""Pairs of texts: read from files, and made in code."""

import datetime
import gzip
import re

import pytest

from flax_attn.data import dates, multi30k, pairs, toy
from flax_attn.data.sets import Dates, Multi30k, PairsTSV, Reverse
from flax_attn.data.text import PREPROCESSING
from flax_attn.errors import UsageError


def write(folder, **files):
    """Three lines in each file of Multi30k, but where others are given."""
    (folder / "multi30k").mkdir(exist_ok=True)
    for name in multi30k.NAMES.values():
        for language in ("de", "en"):
            content = files.get(
                f"{name}_{language}",
                f"{language} eins\n{language} zwei \n{language}  drei\u2028vier\n".encode(),
            )
            (folder / "multi30k" / f"{name}.{language}.gz").write_bytes(
                content if content[:1] == b"\x1f" else gzip.compress(content)
            )
    return folder


def test_lines_of_two_languages_are_pairs_in_either_direction(tmp_path):
    raw = Multi30k(source="de", target="en").load(write(tmp_path))
    assert raw.splits["valid"][:2] == (
        ["de eins", "de zwei", "de drei vier"],
        ["en eins", "en zwei", "en drei vier"],
    )
    assert sorted(raw.splits) == ["test", "train", "valid"]
    assert len(raw.files) == 6
    again = Multi30k(source="en", target="de").load(tmp_path).splits["test"]
    assert (again.inputs[0], again.targets[0]) == ("en eins", "de eins")


@pytest.mark.parametrize(("num_train", "expected"), [(0, 3), (2, 2)])
def test_the_first_pairs_train_where_not_all_do(tmp_path, num_train, expected):
    """The other splits are whole."""
    raw = Multi30k(source="en", target="de", num_train=num_train).load(write(tmp_path))
    sizes = {name: len(own.inputs) for name, own in raw.splits.items()}
    assert sizes == {"train": expected, "valid": 3, "test": 3}
    assert (raw.splits["train"].inputs[0], raw.splits["train"].targets[0]) == ("en eins", "de eins")
    assert len(raw.files) == 6


def test_pairs_with_a_longer_side_are_left_out_of_every_split(tmp_path):
    longer = {"train_en": b"one two\none two three\none\n", "train_de": b"eins\nzwei\neins 2 3\n"}
    folder, languages = write(tmp_path, **longer), {"source": "de", "target": "en"}
    splits = Multi30k(**languages, max_words=2).load(folder).splits
    assert splits["train"][:2] == (["eins"], ["one two"])
    assert splits["valid"][:2] == (["de eins", "de zwei"], ["en eins", "en zwei"])
    with pytest.raises(UsageError, match="got none"):
        Multi30k(**languages, max_words=1).load(folder)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"val_en": b"one\ntwo\n"}, "valid split, got 3 in de and 2 in en"),
        ({"train_de": b"one\n\nthree\n"}, "train.de.gz"),
        ({"train_de": "één\n".encode("latin-1")}, "train.de.gz, line 1"),
        ({"train_de": gzip.compress(b"one two three\n" * 100)[:40]}, "train.de.gz"),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path, files, said):
    with pytest.raises(UsageError, match=said):
        Multi30k(source="de", target="en").load(write(tmp_path, **files))


@pytest.mark.slow
def test_the_real_files(manual_dir):
    by_split = Multi30k(source="de", target="fr").load(manual_dir).splits
    assert {split: len(some.inputs) for split, some in by_split.items()} == {
        "train": 29_000,
        "valid": 1_014,
        "test": 1_000,
    }
    source, target = (column[2] for column in by_split["train"][:2])
    assert source == "Ein kleines Mädchen klettert in ein Spielhaus aus Holz."
    assert target == "Une petite fille grimpe dans une maisonnette en bois."


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("monday, 3 mar 2021", "mar"),
        ("sunday september 1st 1991", "september"),
        ("may 2, 1999", "may"),
    ],
)
def test_the_month_of_a_date_is_found(text, name):
    assert text[dates.place_of_month(text)] == name


def test_the_users_pairs_stand_on_lines_with_a_tab_between(tmp_path):
    (tmp_path / "own.tsv").write_text(
        "\ufeffein  Haus\ta house\tCC-BY\n\nzwei\ttwo\r\n", encoding="utf-8"
    )
    assert pairs.read(tmp_path / "own.tsv") == [("ein Haus", "a house"), ("zwei", "two")]


def test_pairs_may_stand_in_a_csv_file(tmp_path):
    (tmp_path / "own.CSV").write_text('1,"ein Haus, so",a house\n\n2,zwei,"""two"""\n')
    assert pairs.read(tmp_path / "own.CSV", 2, 3) == [
        ("ein Haus, so", "a house"),
        ("zwei", '"two"'),
    ]
    (tmp_path / "bad.csv").write_text("a,b\nalone\n")
    with pytest.raises(UsageError, match="line 2"):
        pairs.read(tmp_path / "bad.csv")


def test_a_quote_in_a_tsv_file_is_a_character(tmp_path):
    (tmp_path / "own.tsv").write_text('"ein, zwei\t"one" two\n')
    assert pairs.read(tmp_path / "own.tsv") == [('"ein, zwei', '"one" two')]


def test_each_split_has_a_source_of_the_users_pairs(tmp_path):
    path = tmp_path / "own.tsv"
    for number in (2, 3):
        path.write_text("".join(f"{source}\tb\n{source}\tc\n" for source in "xyz"[:number]))
        data = PairsTSV(file=str(path))
        if number == 2:
            with pytest.raises(UsageError, match="sources"):
                data.load(None)
        else:
            assert [len(rows.inputs) for rows in data.load(None).splits.values()] == [2, 2, 2]


def test_letters_are_reversed():
    drawn = toy.reversed_letters(3, 200, min_length=2, max_length=5)
    assert all(pair.target.split() == pair.source.split()[::-1] for pair in drawn)
    assert {len(pair.source.split()) for pair in drawn} == {2, 3, 4, 5}
    assert drawn == toy.reversed_letters(3, 200, min_length=2, max_length=5)
    assert drawn != toy.reversed_letters(4, 200, min_length=2, max_length=5)


def test_a_date_is_written_in_every_form():
    written = "2 march 1971; 2 mar 1971; 2nd of march 1971; march 2, 1971; mar 2nd, 1971;"
    written += " tuesday, 2 march 1971; tuesday march 2nd 1971; 1971, march 2"
    day = datetime.date(1971, 3, 2)
    assert [dates.write(day, form) for form in dates.FORMS] == written.split("; ")


def test_ordinals():
    assert [dates.ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 22, 23, 30, 31)] == (
        ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "23rd", "30th", "31st"]
    )


def test_dates_say_what_they_become():
    drawn = dates.generate(0, 500)
    assert drawn == dates.generate(0, 500)
    for source, target in drawn:
        date = datetime.date.fromisoformat(target)
        assert str(date.year) in source
        months = re.findall("[a-z]{3,}", source.replace(date.strftime("%A").lower(), ""))
        assert date.strftime("%B").lower() in months or date.strftime("%b").lower() in months
        assert str(date.day) in source
    assert len({target[:4] for _, target in drawn}) > 80


@pytest.mark.parametrize(
    ("data", "number"),
    [
        (Dates(num_train=900_000), "292,200"),
        (Reverse(num_train=700, min_letters=1, max_letters=2), "702"),
    ],
)
def test_more_pairs_than_there_are_is_told_before_any_is_drawn(data, number):
    with pytest.raises(UsageError, match=number):
        data.load(None)


def test_long_words_are_never_too_few():
    sizes = {"num_train": 20, "num_valid": 5, "num_test": 5}
    splits = Reverse(min_letters=11, max_letters=12, **sizes).load(None).splits
    assert [len(splits[name].inputs) for name in ("train", "valid", "test")] == [20, 5, 5]


def test_pairs_of_words_keep_their_case_and_have_one_right_answer(tmp_path):
    rows = "".join(f"Bever{i}\tB EH V ER{i}\n" for i in range(40))
    (tmp_path / "own.tsv").write_text(rows)
    common = {"file": str(tmp_path / "own.tsv"), "tokenizer": "character"}
    raws = {kind: PairsTSV(**common, preprocessing=kind).load(None) for kind in ("lower", "cased")}
    (note,) = raws["lower"].notes
    assert "data.preprocessing=cased" in note
    assert raws["cased"].notes == []
    data = PairsTSV(**common, preprocessing="cased")
    assert not data.is_natural
    assert PairsTSV(file="own.tsv").is_natural
    assert PREPROCESSING["cased"](" Bever \t 1") == "Bever 1"
    assert len(data.rows_in(common["file"]).inputs) == 40
