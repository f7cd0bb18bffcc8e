"""Data sets.

Each is a frozen dataclass whose fields are the keys under `data`; `DATA` maps a config's
`data.name` to its class.
"""

from flax_attn.data.sets.images import MNIST as MNIST
from flax_attn.data.sets.images import ImageFiles as ImageFiles
from flax_attn.data.sets.kinds import DataSet as DataSet
from flax_attn.data.sets.kinds import ImageData as ImageData
from flax_attn.data.sets.kinds import PairData as PairData
from flax_attn.data.sets.kinds import SignalData as SignalData
from flax_attn.data.sets.kinds import TextData as TextData
from flax_attn.data.sets.language import LanguageData as LanguageData
from flax_attn.data.sets.language import Names as Names
from flax_attn.data.sets.language import Recall as Recall
from flax_attn.data.sets.language import Repeats as Repeats
from flax_attn.data.sets.language import TextFile as TextFile
from flax_attn.data.sets.language import Tinyshakespeare as Tinyshakespeare
from flax_attn.data.sets.memory import ImageArrays as ImageArrays
from flax_attn.data.sets.memory import PairLists as PairLists
from flax_attn.data.sets.memory import SignalArrays as SignalArrays
from flax_attn.data.sets.memory import TextLists as TextLists
from flax_attn.data.sets.memory import from_python as from_python
from flax_attn.data.sets.numbers import BoxSums as BoxSums
from flax_attn.data.sets.numbers import LargestCount as LargestCount
from flax_attn.data.sets.own import OwnData as OwnData
from flax_attn.data.sets.pairs import Dates as Dates
from flax_attn.data.sets.pairs import Multi30k as Multi30k
from flax_attn.data.sets.pairs import PairsTSV as PairsTSV
from flax_attn.data.sets.pairs import Reverse as Reverse
from flax_attn.data.sets.series import InputSeries as InputSeries
from flax_attn.data.sets.signals import Shapes as Shapes
from flax_attn.data.sets.signals import SignalFiles as SignalFiles
from flax_attn.data.sets.texts import SST as SST
from flax_attn.data.sets.texts import AGNews as AGNews
from flax_attn.data.sets.texts import NumberCSV as NumberCSV
from flax_attn.data.sets.texts import TextCSV as TextCSV

DATA: dict[str, type[DataSet]] = {
    "shapes": Shapes,
    "signals_npz": SignalFiles,
    "mnist": MNIST,
    "image_files": ImageFiles,
    "ag_news": AGNews,
    "sst": SST,
    "text_csv": TextCSV,
    "number_csv": NumberCSV,
    "largest_count": LargestCount,
    "box_sums": BoxSums,
    "input_series": InputSeries,
    "reverse": Reverse,
    "dates": Dates,
    "multi30k": Multi30k,
    "pairs": PairsTSV,
    "tinyshakespeare": Tinyshakespeare,
    "text_file": TextFile,
    "names": Names,
    "repeats": Repeats,
    "recall": Recall,
    "signal_arrays": SignalArrays,
    "text_lists": TextLists,
    "image_arrays": ImageArrays,
    "pair_lists": PairLists,
}
