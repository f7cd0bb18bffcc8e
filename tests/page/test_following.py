"""A page that follows a training: its model, its line and its curves are the newest."""

import json
import threading
import urllib.request
from types import SimpleNamespace

import pytest

from flax_attn import experiment
from flax_attn.commands import following
from flax_attn.config_files import read
from flax_attn.experiment import Config
from flax_attn.experiment.running import Trained
from flax_attn.explore.server import free_port
from tests import tiny
from tests.page.exploring import visiting

SHAPES = tiny.ATTENTION | tiny.SHAPES | {"steps_per_epoch": 5, "num_epochs": 2, "num_seeds": 2}


@pytest.fixture
def config():
    values = read("shapes_attention")
    values.update_from_flattened_dict(SHAPES)
    return Config.of(values)


def state_of(follower):
    with urllib.request.urlopen(f"{follower.server.url}state") as reply:
        return json.load(reply)


def test_the_page_follows_until_the_end(config, tmp_path, browser):
    port = free_port(8700)
    follower, at = following.Follower(config, tmp_path / "run", opens=False, port=port), []
    going = threading.Semaphore(0)

    def on_model(trained):
        follower(trained)
        at.append(follower.answers.params[0])
        going.acquire()

    def train():
        with tiny.no_pictures():
            experiment.run(config, tmp_path / "run", on_model=on_model)

    thread = threading.Thread(target=train, daemon=True)
    thread.start()
    while follower.server is None:
        thread.join(0.05)
        assert thread.is_alive()
    with visiting(browser, follower.server.url) as visit:
        line = visit.page.locator(".note[role=status]")
        assert follower.server.server_port == port
        line.filter(has_text="before its training").wait_for()
        visit.wait()
        before = visit.page.locator("path.try-answer-0").get_attribute("d")
        assert state_of(follower)["epoch"] == 0
        going.release()
        line.filter(has_text="after epoch 1 of 2").wait_for()
        visit.wait()
        assert visit.page.locator("path.try-answer-0").get_attribute("d") != before
        scores = state_of(follower)["curves"]["valid/mse"]["seeds"]
        score = sum(values[-1] for values in scores.values()) / len(scores)
        heading = visit.page.locator("h1").text_content()
        assert "Task: level each pair of shapes of a kind; so far" in heading
        assert f"valid mse {score:.3g}" in heading
        going.release(2)
        thread.join()
        threading.Thread(target=follower.finish, daemon=True).start()
        visit.page.get_by_role("button", name="Show examples and results").click()
        visit.page.get_by_role("heading", name="Results").wait_for()
    assert "so far" not in state_of(follower)["sentence"]
    assert len(at) == 3
    follower.server.shutdown()


def test_without_a_follower_there_is_no_state(config, tmp_path):
    from flax_attn.explore.server import open_explorer

    with open_explorer(0, "page", []) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{server.url}state")
        server.shutdown()


def test_a_page_that_follows_tells_the_mean_over_seeds_and_all_epochs(config, tmp_path):
    """The line has the newest epoch alone, the curves have all."""
    follower = following.Follower(config, tmp_path / "run", opens=False)
    follower.server, follower.does = object(), "learns"
    task = SimpleNamespace(target=SimpleNamespace(measured="mse"))
    follower.answers = SimpleNamespace(params=None, task=task)
    for epoch, errors in ((0, (9.0, 8.0)), (1, (4.0, 2.0)), (2, (1.0, 0.5))):
        rows = [
            {"epoch": epoch, "seed": seed, "step": 5 * epoch, "valid/mse": error, "test/mse": 9.0}
            for seed, error in enumerate(errors)
        ]
        follower(Trained(None, None, {0: f"first {epoch}", 1: f"second {epoch}"}, rows))
    assert follower.answers.params == ["first 2", "second 2"]
    state = follower.state()
    assert (state["epoch"], state["of"], state["is_finished"]) == (2, 2, False)
    assert state["sentence"] == "task: learns; so far valid mse 0.75"
    seeds = {"0": [9.0, 4.0, 1.0], "1": [8.0, 2.0, 0.5]}
    assert state["curves"]["valid/mse"] == {"steps": [0, 5, 10], "seeds": seeds}
    follower.result = 0.25
    assert follower.state()["sentence"] == "task: learns; test mse 0.25"
