"""Pictures of the user's own: read in grey or in colour, or told in one line."""

import io

import numpy as np
import pytest
from PIL import Image

from flax_attn.data import pictures
from flax_attn.errors import UsageError

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7), np.uint8)


def png(pixels):
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "png")
    return content.getvalue()


def write(folder, **images):
    """Pictures by their path in a folder, whose parts have `__` between."""
    for name, pixels in images.items():
        path = folder.joinpath(*name.split("__")).with_suffix(".png")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pixels if isinstance(pixels, bytes) else png(pixels))
    return folder


def test_grey_is_as_it_is_and_colours_become_grey(tmp_path):
    write(tmp_path, grey=PIXELS, red=np.full((2, 3, 3), (255, 0, 0), np.uint8))
    np.testing.assert_array_equal(pictures.read(tmp_path / "grey.png"), PIXELS)
    # 0.299 of 255, by ITU-R 601-2
    np.testing.assert_array_equal(pictures.read(tmp_path / "red.png"), np.full((2, 3), 76))


def test_a_folder_in_colour_is_grey_where_all_its_pictures_are(tmp_path):
    red = np.full((5, 7, 3), (255, 0, 0), np.uint8)
    write(tmp_path, a__grey=PIXELS)
    images, _ = pictures.read_folder(tmp_path, in_colour=True)[0]["all"]
    np.testing.assert_array_equal(images, [PIXELS])
    write(tmp_path, b__red=red)
    images, _ = pictures.read_folder(tmp_path, in_colour=True)[0]["all"]
    np.testing.assert_array_equal(images, [np.repeat(PIXELS[..., None], 3, axis=-1), red])


def test_transparent_parts_are_ground(tmp_path):
    for ink, ground in ((0, 255), (255, 0)):
        drawn = np.zeros((2, 3, 4), np.uint8)
        drawn[0, 0] = ink, ink, ink, 255
        pixels = pictures.read(write(tmp_path, drawn=drawn) / "drawn.png")
        assert (pixels[0, 0], pixels[1].tolist()) == (ink, [ground] * 3)
        coloured = pictures.read(tmp_path / "drawn.png", in_colour=True)
        np.testing.assert_array_equal(coloured, np.repeat(pixels[..., None], 3, axis=-1))
    palette = Image.fromarray(PIXELS).convert("P")
    palette.info["transparency"] = bytes(range(256))
    palette.save(tmp_path / "palette.png")
    assert pictures.read(tmp_path / "palette.png").shape == (5, 7)


def test_a_photograph_stands_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    Image.fromarray(PIXELS).save(tmp_path / "own.png", exif=exif)
    np.testing.assert_array_equal(pictures.read(tmp_path / "own.png"), np.rot90(PIXELS, -1))


def test_ink_is_light(tmp_path):
    ink = np.zeros((5, 5), np.uint8)
    ink[2, 2] = 200
    write(tmp_path, light=ink, dark=255 - ink, blank=np.zeros((5, 5), np.uint8))
    for name in ("light", "dark"):
        np.testing.assert_array_equal(pictures.read_ink(tmp_path / f"{name}.png"), ink)
    with pytest.raises(UsageError, match=r"something drawn in .*blank.png"):
        pictures.read_ink(tmp_path / "blank.png")


def test_a_folder_by_class_is_in_the_order_of_names(tmp_path):
    write(tmp_path, dog__b=PIXELS, dog__a=PIXELS + 1, cat__c=PIXELS + 2)
    (tmp_path / ".DS_Store").write_bytes(b"hidden")
    (tmp_path / "cat" / ".hidden").mkdir()
    splits, before, sizes = pictures.read_folder(tmp_path)
    assert sizes == {PIXELS.shape}
    images, labels = splits["all"]
    assert (list(splits), labels) == (["all"], ["cat", "dog", "dog"])
    np.testing.assert_array_equal(images, [PIXELS + 2, PIXELS + 1, PIXELS])
    assert pictures.read_folder(tmp_path)[1] == before
    (tmp_path / "dog" / "a.png").rename(tmp_path / "cat" / "d.png")  # the contents in their order
    assert pictures.read_folder(tmp_path)[1] != before


def test_a_folder_by_split(tmp_path):
    write(tmp_path, train__cat__a=PIXELS, train__dog__a=PIXELS, test__cat__a=PIXELS)
    assert {name: labels for name, (_, labels) in pictures.read_folder(tmp_path)[0].items()} == {
        "train": ["cat", "dog"],
        "test": ["cat"],
    }
    write(tmp_path, valid__dog__a=PIXELS)
    assert list(pictures.read_folder(tmp_path)[0]) == ["train", "valid", "test"]
    write(tmp_path, val__dog__a=PIXELS)
    with pytest.raises(
        UsageError, match=r"train, test and perhaps valid in .*, got test, train, val"
    ):
        pictures.read_folder(tmp_path)


@pytest.mark.parametrize(
    ("images", "said"),
    [
        ({}, "empty folder"),
        ({"a": PIXELS}, "a.png"),
        ({"a__b__c": PIXELS}, "a/b"),
        ({"a__b": PIXELS, "c__d": PIXELS.T}, "data.size"),
        ({"a__b": PIXELS, "c__d": b"words"}, "d.png"),
    ],
)
def test_a_folder_that_is_none_is_named(tmp_path, images, said):
    with pytest.raises(UsageError, match=said):
        pictures.read_folder(write(tmp_path, **images))


def test_other_files_are_named_and_those_of_systems_are_not_read(tmp_path):
    write(tmp_path, cat__a=PIXELS, dog__a=PIXELS)
    (tmp_path / "cat" / "Thumbs.db").write_bytes(b"of Windows")
    (tmp_path / "__MACOSX").mkdir()
    assert pictures.read_folder(tmp_path)[0]["all"][1] == ["cat", "dog"]
    (tmp_path / "dog" / "notes.txt").write_text("notes")
    with pytest.raises(UsageError, match=r"notes.txt"):
        pictures.read_folder(tmp_path)


def test_the_pictures_of_a_folder_are_those_that_show(tmp_path):
    write(tmp_path, b=PIXELS, a=PIXELS, classes__c=PIXELS)
    (tmp_path / "._a.png").write_bytes(b"of another system")
    (tmp_path / "notes.txt").write_text("notes")
    assert [path.name for path in pictures.within(tmp_path)] == ["a.png", "b.png"]


def test_images_of_several_sizes_are_scaled(tmp_path):
    """A shape keeps its sides: what a picture lacks for a square, repeats its edges."""
    flat = np.full((10, 14, 3), (51, 102, 153), np.uint8)
    halves = np.repeat(np.array([[0, 255]], np.uint8), 8, axis=1).repeat(8, axis=0)
    write(tmp_path, a__flat=flat, b__halves=halves)
    images, _ = pictures.read_folder(tmp_path, 6, in_colour=True)[0]["all"]
    assert (images.shape, images.dtype) == ((2, 6, 6, 3), np.float32)
    np.testing.assert_allclose(images[0], np.broadcast_to([0.2, 0.4, 0.6], (6, 6, 3)), atol=1e-6)
    left, right = images[1][:, :4], images[1][:, 4:]
    assert max(np.ptp(left, axis=0).max(), np.ptp(right, axis=0).max()) < 1e-6
    assert left[:, 0].max() < 0.01 < 0.99 < right[:, -1].min()
