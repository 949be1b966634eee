"""A model's weights with what the engine must know of them: our decoder, or any causal language model."""

import inspect
import json
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer
from transformers.utils import logging as transformers_logging

from agent.engine.decoder import CONFIG, Decoder, KeyValues
from agent.engine.decoder_config import DecoderConfig
from agent.engine.experts import Routers
from agent.engine.protocol import EngineError
from agent.engine.published import Published
from agent.engine.rows import Step


class Network(Protocol):
    """`config` is the model's own. `ragged`: rows of different lengths can share a pass."""

    model: Any
    config: Any
    device: torch.device
    layers: int
    ragged: bool
    experts: int
    """Experts that a token is sent to, 0 for a model without (or one whose router cannot be asked)."""

    def forward(self, ids: Tensor, positions: Tensor, seen: Tensor, store: Any, last: int) -> Step:
        """A pass over `ids` `[rows, new]` that attend to what is `seen` `[rows, 1, new, all]`; the logits
        `[rows, new, vocabulary]` of all new ids or of the `last` so many."""
        ...


class OwnNetwork:
    """The small decoder."""

    def __init__(self, model: Decoder, device: torch.device) -> None:
        self.model = model.to(device).eval()
        self.config, self.device = model.config, device
        self.layers, self.experts, self.ragged = model.config.layers, model.config.top_k, True

    def forward(self, ids: Tensor, positions: Tensor, seen: Tensor, store: KeyValues, last: int) -> Step:
        mask = _additive(seen, self.device)
        output = self.model(ids.to(self.device), positions.to(self.device), mask, store, last=last)
        return Step(output.logits, output.routes)


class HuggingFaceNetwork:
    """Any causal language model of transformers."""

    def __init__(self, model: Any, device: torch.device) -> None:
        self.model = model.to(device).eval()
        self.config, self.device = model.config, device
        kinds = DynamicCache(config=model.config).layers
        self.layers = len(kinds) or model.config.get_text_config().num_hidden_layers
        takes = inspect.signature(model.forward).parameters
        self.ragged = "position_ids" in takes and all(type(layer) is DynamicLayer for layer in kinds)
        self._routers = Routers.of(self.model, device) if self.ragged else None
        self.experts = self._routers.top_k if self._routers else 0

    def forward(self, ids: Tensor, positions: Tensor, seen: Tensor, store: Cache, last: int) -> Step:
        output: Any = self.model(
            ids.to(self.device),
            position_ids=positions.to(self.device),
            attention_mask=_additive(seen, self.device),
            past_key_values=store,
            use_cache=True,
            logits_to_keep=last,
        )
        return Step(output.logits, self._routers.taken(*ids.shape) if self._routers else None)


def open_network(path: Path, device: torch.device, version: Published | None = None) -> Network:
    """Load a Hugging Face folder, or a policy's `version`, in fp32. Blocks for seconds.

    Raises:
        EngineError: there is no causal language model in it.
    """
    transformers_logging.disable_progress_bar()
    folder, given = (path, None) if version is None else (version.model, version.tensors())
    try:
        config = DecoderConfig.read(json.loads((folder / CONFIG).read_text(encoding="utf-8")))
        if config is not None and given is None:
            return OwnNetwork(Decoder.from_folder(folder), device)
        if config is not None and given is not None:
            decoder = Decoder(config)
            decoder.take(given)
            return OwnNetwork(decoder, device)
        options: dict[str, Any] = {"dtype": torch.float32, "local_files_only": True}
        model = AutoModelForCausalLM.from_pretrained(folder, **options)
        if given is not None and folder != path:
            model = type(model).from_pretrained(None, config=model.config, state_dict=given, **options)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise EngineError(f"{path} cannot be loaded as a causal language model: {error}") from error
    return HuggingFaceNetwork(model, device)


def _additive(seen: Tensor, device: torch.device) -> Tensor:
    """0 where a position may be attended to, the lowest number elsewhere."""
    mask = torch.zeros(seen.shape, device=device)
    return mask.masked_fill_(~seen.to(device), torch.finfo(torch.float32).min)
