"""Where config, data, model and training meet: build, run, load."""

from flax_attn.experiment.config import Config as Config
from flax_attn.experiment.loading import Run as Run
from flax_attn.experiment.loading import load as load
from flax_attn.experiment.running import run as run
