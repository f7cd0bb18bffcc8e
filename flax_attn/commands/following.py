"""Explores a run while it trains: a page asks the model as it stands, and hears when it changes."""

import json
import threading
from pathlib import Path
from typing import cast

from flax_attn.commands.exploring import announce, explore_runs
from flax_attn.experiment import Config
from flax_attn.experiment.loading import Run, load_run
from flax_attn.experiment.running import Trained, derived_of
from flax_attn.explore.answers import Answers
from flax_attn.explore.server import Explorer, check_free, open_explorer
from flax_attn.page.data import curves, safe
from flax_attn.page.report import report
from flax_attn.runs import reading
from flax_attn.runs.reading import Record
from flax_attn.runs.results import Row, Summary, summarize_values
from flax_attn.types import JsonObject


class Follower:
    """Serves the page of a run from its first parameters on, by the newest ones.

    There is no `server` before the first model. `rows` are of all epochs since then. `result` is
    the test score of the kept parameters, None until the run is finished.
    """

    def __init__(self, config: Config, workdir: Path, opens: bool, port: int | None = None) -> None:
        check_free(port)  # the page is opened later, when something is written
        self.config, self.workdir, self.opens, self.port = config, workdir, opens, port
        self.server: Explorer | None = None
        self.rows: list[Row] = []
        self.result: float | None = None

    def __call__(self, trained: Trained) -> None:
        """Takes the model as it stands, and opens the page with the first one."""
        self.rows += trained.rows
        if self.server is None:
            self.open(trained)
        else:
            self.answers.params = list(trained.params.values())

    def open(self, trained: Trained) -> None:
        """Serves the page, and shows it."""
        task, model, params, rows = trained
        record = record_of(self.config, self.workdir, trained)
        run = Run(self.workdir, task, model, params, self.config, record.summary, rows)
        self.answers, self.does = Answers(run), task.target.summary(record)
        page = report([record], mode="follow")
        self.server = open_explorer(self.port, page, [self.answers], self.state)
        announce(self.server, record.name, self.opens)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def state(self) -> JsonObject:
        """Returns how far the training is. The page asks once a second."""
        measured, epoch = self.answers.task.target.measured, self.rows[-1]["epoch"]
        newest = [row for row in self.rows if row["epoch"] == epoch]
        split = "valid" if f"valid/{measured}" in newest[0] else "test"
        score = sum(row[f"{split}/{measured}"] for row in newest) / len(newest)
        said = f"so far {split} {measured} {score:.3g}"
        if self.result is not None:
            said = f"test {measured} {self.result:.3g}"
        state: JsonObject = {
            "epoch": int(epoch),
            "of": self.config.num_epochs,
            "is_finished": self.result is not None,
            "sentence": f"task: {self.does}; {said}",
            "curves": curves(self.rows),
        }
        return safe(state)

    def finish(self) -> None:
        """Serves the page of the finished run, until Ctrl-C, which is raised."""
        record, run = reading.read(self.workdir), load_run(self.workdir)
        if self.server is None:  # the run was finished before
            explore_runs([record], [run], self.port, self.opens)
        else:
            self.answers.params = list(run.params.values())
            self.server.show(report([record], mode="explore"))
            self.result = record.mean(record.measured)
            threading.Event().wait()


def record_of(config: Config, workdir: Path, trained: Trained) -> Record:
    """Returns what the directory of the run would hold if the training ended here."""
    task, model, params, rows = trained
    examples = task.examples(model, list(params.values()))
    tests = [name for name in rows[0] if name.startswith("test/")]
    tested = {name: [row[name] for row in rows] for name in tests} | examples.metrics
    summary: JsonObject = {
        "config": config.name,
        "task": task.name,
        "model": config.model["name"],
        "parameters": 0,
        "seeds": list(config.seeds),
        "diverged": {},
        "epochs": 0,
        "stopped": False,
        "steps": 0,
        "train_seconds": 0.0,
        "measured": task.target.measured,
        "metrics": {name: summarize_values(values) for name, values in tested.items()},
    } | examples.summary
    values = json.loads(json.dumps(config.values | {"derived": derived_of(task)}))
    name = workdir.resolve().name
    return Record(name, workdir, values, rows, dict(examples.arrays), cast(Summary, summary))
